"""Liveness of a plan, and its state in a word: whether it runs, and who watches it.

In: a state directory and a plan. Out: a `Liveness`; text, or plain data. Called by
`get`, `describe` and `gather`. The kernel is asked, because a command that was killed
wrote nothing: a status stays `Running` for ever if nobody continues it.

    a command holds the plan's lock     watched
    its task processes live             unwatched: they train on
    its ranks have ended since          ended
    none of these                       gone
"""

from __future__ import annotations

from enum import StrEnum

from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.backends.local.state_dir import StateFolder
from plimsoll_operator.backends.local.task_processes import TaskProcesses
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.records.task import END

FOR_PEOPLE = ("Suspended", "InvalidSpec")
"""States in which a plan is left, and a person is asked for."""


class Liveness(StrEnum):
    """Liveness of a plan: who or what runs it now."""

    WATCHED = "watched"
    """A command runs it."""
    UNWATCHED = "unwatched"
    """Its processes run, and no command."""
    ENDED = "ended"
    """Its ranks have ended, and no command has read how."""
    GONE = "gone"
    """Nothing of it runs."""


def liveness_of(home: StateFolder, plan: StoredPlan) -> Liveness:
    """Liveness of a plan now; nothing is changed.

    Who shows it beside a status reads that afterwards: a plan that ends in between is
    shown as ended then, and not as one that nobody runs.
    """
    folder = home.plan(plan.uid)
    if home.is_run(plan.name):
        return Liveness.WATCHED
    if plan.status.is_over:
        return Liveness.GONE
    if TaskProcesses(folder.tasks).alive():
        return Liveness.UNWATCHED
    if any(folder.tasks.glob(f"train-*/{END}")):
        return Liveness.ENDED
    return Liveness.GONE


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
