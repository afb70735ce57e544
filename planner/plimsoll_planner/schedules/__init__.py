"""Pipeline schedules: a file for each, with everything that holds for it alone.

one_f_one_b    one backward pass and one forward pass in turn

A new schedule is a file here whose `SCHEDULE` is a `PipelineSchedule`. It is searched
for the engines that run it (`engines`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.timing.schedule import PipelineSchedule


def found() -> list[PipelineSchedule]:
    """Schedules of all files here, by file name."""
    names = sorted(module.name for module in iter_modules(__path__, f"{__name__}."))
    return [import_module(name).SCHEDULE for name in names]


SCHEDULES: Mapping[Schedule, PipelineSchedule] = {one.name: one for one in found()}
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
