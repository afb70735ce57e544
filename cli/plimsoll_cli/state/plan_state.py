"""State of a plan: in a word, and as JSON.

In: a stored plan, and whether anything of it runs. Out: text, or plain data. Called by
`get` and `describe`.
"""

from __future__ import annotations

from plimsoll_cli.state.liveness import Liveness
from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.store.plans import StoredPlan

FOR_PEOPLE = ("Suspended", "InvalidSpec")
"""States in which a plan is left, and a person is asked for."""


def plan_json(plan: StoredPlan, liveness: Liveness) -> dict[str, object]:
    """A plan as Kubernetes would write it, with its state here."""
    return {
        "metadata": {
            "name": plan.name,
            "uid": plan.uid,
            "generation": plan.generation,
        },
        "spec": plan.spec.to_json(),
        "status": plan.status.to_json(),
        "home": {
            "state": state_text(plan, liveness),
            "isRun": liveness is Liveness.WATCHED,
        },
    }


def state_text(plan: StoredPlan, liveness: Liveness) -> str:
    """State of a plan: the step it is at, and whether it goes on."""
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
