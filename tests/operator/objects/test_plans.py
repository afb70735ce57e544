"""TrainingPlans as the API server has them."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_operator.api.status import CheckpointsStatus, Status
from plimsoll_operator.objects.plans import plan_of
from tests.support.api_values import A_STATUS
from tests.support.cluster_objects import (
    CREATED_S,
    OWNER,
    a_plan_manifest,
    a_plan_object,
)


def test_a_plan_is_read_whole() -> None:
    """Who it is, which version, since when."""
    plan = plan_of(a_plan_manifest())
    assert plan.owner == OWNER
    assert (plan.generation, plan.version, plan.created_s) == (1, "7", CREATED_S)
    assert plan.spec is not None
    assert (plan.fault, plan.is_deleting) == ("", False)
    assert plan.status == Status()
    deleted = a_plan_manifest(deletionTimestamp="2026-11-21T09:30:00Z")
    assert plan_of(deleted).is_deleting


@pytest.mark.parametrize("spec", [None, {}, [], "a", {"workload": {}}])
def test_a_spec_that_cannot_be_read_is_a_fault_and_no_error(spec: Any) -> None:
    """A plan that was made under another release's schema may be like that."""
    plan = plan_of(a_plan_manifest() | {"spec": spec})
    assert plan.spec is None
    assert plan.fault


def test_checkpoints_lie_below_the_claim_in_a_folder_of_the_plan() -> None:
    """Named as `resumeFrom` of another plan names it; without a claim is none."""
    assert a_plan_object(checkpoint={"path": "runs"}).checkpoints is None
    found = a_plan_object(checkpoint={"claimName": "ckpt"}).checkpoints
    assert found == CheckpointsStatus(claim_name="ckpt", folder=OWNER.uid)
    found = a_plan_object(checkpoint={"claimName": "ckpt", "path": "runs"}).checkpoints
    assert found == CheckpointsStatus(claim_name="ckpt", folder=f"runs/{OWNER.uid}")


def test_a_status_is_read_as_it_was_written() -> None:
    """Else it would be written again in every pass."""
    whole = Status.from_json(A_STATUS, "status")
    told = a_plan_manifest() | {"status": whole.to_json()}
    assert plan_of(told).status == whole


@pytest.mark.parametrize("status", [None, {"a": 1}, {"conditions": 3}, "text", []])
def test_a_status_of_somebody_else_is_none(status: Any) -> None:
    """All of it can be said again."""
    assert plan_of(a_plan_manifest() | {"status": status}).status == Status()
