"""The least that a spec says, for tests that ask for something."""

from __future__ import annotations

from typing import Any, Final

from plimsoll_operator.api.spec import TrainingPlanSpec, parse_spec

LEAST: Final[dict[str, Any]] = {
    "workload": {"entrypoint": "tiny_model:workload"},
    "training": {"globalBatchSize": 8, "steps": 20},
}


def a_spec(**parts: Any) -> TrainingPlanSpec:
    """Ask for a small training, and whatever else is given."""
    return parse_spec(LEAST | parts)
