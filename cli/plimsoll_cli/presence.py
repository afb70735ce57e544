"""Whether anything of a plan runs now, and whether anybody waits for it.

In: a home and a plan. Out: a `Presence`. The kernel is asked, for whoever was killed
wrote nothing down: a status says `Running` for ever, if nobody goes on with it.

    a command holds the plan's lock     watched
    processes of its children live      unwatched: they train on
    its ranks have ended since          ended
    none of these                       gone
"""

from __future__ import annotations

from enum import StrEnum

from plimsoll_operator.backends.local.state_dir import HomeFolder
from plimsoll_operator.backends.local.task_processes import Children
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.records.task import END


class Presence(StrEnum):
    """What there is of a plan besides what is written down."""

    WATCHED = "watched"
    """A command runs it."""
    UNWATCHED = "unwatched"
    """Its processes run, and no command."""
    ENDED = "ended"
    """Its ranks have ended, and no command has looked at how."""
    GONE = "gone"
    """Nothing of it runs."""


def presence_of(home: HomeFolder, plan: StoredPlan) -> Presence:
    """Look for what there is of a plan now; changes nothing.

    Who shows it beside a status reads that afterwards: a plan that ends in between is
    told as ended then, and not as one that nobody runs.
    """
    folder = home.plan(plan.uid)
    if home.is_run(plan.name):
        return Presence.WATCHED
    if plan.status.is_over:
        return Presence.GONE
    if Children(folder.children).alive():
        return Presence.UNWATCHED
    if any(folder.children.glob(f"train-*/{END}")):
        return Presence.ENDED
    return Presence.GONE
