"""Pipeline schedules: a file for each, with everything that holds for it alone.

one_f_one_b    one backward pass and one forward pass in turn

A new schedule is a file here whose `SCHEDULE` is a `PipelineSchedule`. It is searched
for the engines that run it (`engines`).
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.registry import registered
from plimsoll_planner.timing.schedule import PipelineSchedule

SCHEDULES: Mapping[Schedule, PipelineSchedule] = {
    one.name: one
    for one in registered(__name__, __path__, "SCHEDULE")
    if isinstance(one, PipelineSchedule)
}
"""Schedules that are planned, by name."""
PUBLISHED = {
    "interleaved schedules": (
        Schedule.INTERLEAVED_1F1B,
        Schedule.INTERLEAVED_ZERO_BUBBLE,
    ),
}
"""Schedules that planners know. A certificate names those it was searched without."""


def absent() -> tuple[str, ...]:
    """Published schedules that are not searched."""
    return tuple(
        name for name, members in PUBLISHED.items() if not SCHEDULES.keys() & members
    )
