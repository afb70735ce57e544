"""Names that users write down; a change would orphan what they stored."""

from __future__ import annotations

from plimsoll_operator import names


def test_the_api_group_and_kind_are_settled() -> None:
    """Stored objects and manifests carry these words."""
    assert (names.GROUP, names.VERSION) == ("plimsoll.dev", "v1alpha1")
    assert (names.KIND, names.PLURAL) == ("TrainingPlan", "trainingplans")
    assert names.SHORT_NAME == "tplan"
    assert names.PLAN_LABEL == "plimsoll.dev/plan"
