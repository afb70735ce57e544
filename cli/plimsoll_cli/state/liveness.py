"""Liveness of a plan of this machine: whether it runs, and who watches it.

In: a state directory and a plan. Out: a `Liveness`. Called by `gather`. The kernel is
asked, because a command that was killed wrote nothing: a status stays `Running` for
ever if nobody continues it.

    a command holds the plan's lock     watched
    its task processes live             unwatched: they train on
    its ranks have ended since          ended
    none of these                       gone
"""

from __future__ import annotations

from enum import StrEnum

from plimsoll_operator.backends.local.state_dir import StateFolder
from plimsoll_operator.backends.local.task_processes import TaskProcesses
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.records.task import END


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
