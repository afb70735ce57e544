"""A plan as verbs list and describe it, wherever it runs; its state in a word.

In: what a state directory or a cluster has of it. Out: text, or plain data. Called by
`get` and `describe`.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_cli.state.liveness import Liveness
from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import ConditionType, Status, Truth

FOR_PEOPLE = ("Suspended", "InvalidSpec")
"""States in which a plan is left, and a person is asked for."""
HOME, CLUSTER = "home", "cluster"
"""Places of plans: fields of their JSON."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownPlan:
    """One TrainingPlan."""

    name: str
    namespace: str = ""
    """Empty on one machine."""
    uid: str
    generation: int
    spec: TrainingPlanSpec | None
    """None where this release cannot read it."""
    status: Status
    liveness: Liveness
    """Whether anything runs it now, and who watches."""
    is_suspended: bool
    created_s: float
    """Since 1970."""
    code: str
    """Place of the code and its entry point, in a line."""

    @property
    def place(self) -> str:
        """Where it runs."""
        return CLUSTER if self.namespace else HOME


def plan_json(plan: ShownPlan) -> dict[str, object]:
    """A plan as Kubernetes would write it, with its state."""
    namespace = {"namespace": plan.namespace} if plan.namespace else {}
    return {
        "metadata": {
            "name": plan.name,
            **namespace,
            "uid": plan.uid,
            "generation": plan.generation,
        },
        "spec": None if plan.spec is None else plan.spec.to_json(),
        "status": plan.status.to_json(),
        plan.place: {
            "state": state_text(plan),
            "isRun": plan.liveness is Liveness.WATCHED,
        },
    }


def state_text(plan: ShownPlan) -> str:
    """State of a plan: the step it is at, and whether it goes on."""
    liveness = plan.liveness
    if plan.status.is_over:
        return state_of(plan.status)
    state = "Suspended" if plan.is_suspended else state_of(plan.status)
    if liveness is Liveness.WATCHED:
        return state
    if liveness is not Liveness.GONE:
        what = "Ended" if liveness is Liveness.ENDED else state
        return f"{what}, unwatched"
    return state if state in FOR_PEOPLE else "Interrupted"


def state_of(status: Status) -> str:
    """The reason of the first step that is not True, or of the last one."""
    ended = status.condition(ConditionType.SUCCEEDED)
    if ended is None:
        return "New"
    if ended.status is not Truth.UNKNOWN:
        return ended.reason
    open_ones = [c for c in status.conditions if c.status is not Truth.TRUE]
    reached = [c for c in open_ones if c.reason != "Waiting"]
    return (reached or open_ones)[0].reason
