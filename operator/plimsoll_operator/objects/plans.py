"""A TrainingPlan as the API server has it.

In: an object. Out: a `PlanObject`; a spec that the schema let through and the types do
not is a fault in it, not an error. Called before each decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from plimsoll_operator.api.spec import TrainingPlanSpec, parse_spec
from plimsoll_operator.api.status import CheckpointsStatus, ConditionType, Status
from plimsoll_operator.kube.api import Object
from plimsoll_operator.kube.times import time_s
from plimsoll_operator.objects.manifests import Owner
from plimsoll_planner.errors import InvalidInputError

STOPPED_BY_US: Final = (
    "Suspending",
    "Replanning",
    "DeadlineExceeded",
    "PendingTimeout",
)
"""Reasons that stand in the status before we delete a Job that trains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanObject:
    """One TrainingPlan."""

    owner: Owner
    """The plan, as what belongs to it names it."""
    generation: int
    version: str
    """Of the object: a status is written over this one alone."""
    created_s: float
    """Seconds since 1970."""
    is_deleting: bool
    spec: TrainingPlanSpec | None
    """None where it cannot be read."""
    fault: str
    """Why it cannot."""
    status: Status

    @property
    def checkpoints(self) -> CheckpointsStatus | None:
        """Folder in which the ranks save, below the claim; None: nothing is saved."""
        wanted = None if self.spec is None else self.spec.checkpoint
        if wanted is None or not wanted.claim_name:
            return None
        folder = PurePosixPath(wanted.path) / self.owner.uid
        return CheckpointsStatus(claim_name=wanted.claim_name, folder=str(folder))


def plan_of(found: Object) -> PlanObject:
    """Read an object."""
    metadata = found["metadata"]
    spec, fault = None, ""
    try:
        spec = parse_spec(found.get("spec"))
    except InvalidInputError as error:
        fault = str(error)
    return PlanObject(
        owner=Owner(
            namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"]
        ),
        generation=metadata.get("generation", 1),
        version=metadata["resourceVersion"],
        created_s=time_s(metadata["creationTimestamp"]),
        is_deleting="deletionTimestamp" in metadata,
        spec=spec,
        fault=fault,
        status=status_of(found),
    )


def status_of(found: Object) -> Status:
    """The status as it was written last; what somebody else wrote there is none.

    All of it can be computed again from what is there.
    """
    try:
        return Status.from_json(found.get("status") or {}, "status")
    except InvalidInputError:
        return Status()


def launched_s(status: Status) -> float:
    """Since when the ranks run, 0 where they do not."""
    condition = status.condition(ConditionType.LAUNCHED)
    if condition is None or not status.holds(ConditionType.LAUNCHED):
        return 0.0
    return time_s(condition.last_transition_time)


def stop_reason(status: Status) -> str:
    """Why we have asked for the end of a worker group; empty if we have not."""
    reasons = map(status.reason, (ConditionType.SUCCEEDED, ConditionType.LAUNCHED))
    return next((reason for reason in reasons if reason in STOPPED_BY_US), "")
