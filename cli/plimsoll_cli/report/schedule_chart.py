"""The timeline of a step: what each stage computes when, as paths of an SVG.

In: a problem and its plan. Out: a `ScheduleView`. Called by `page`. One row a stage, of
its first replica; one path for all passes of a row that are alike, so that a chart of
thousands of passes stays small.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_cli.output.scales import seconds_text, ticks
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.timeline import TimedPass, Timeline, timeline

WIDTH, LEFT, RIGHT = 1000, 66, 76
"""Of the chart, and of what stands beside the rows; units of the SVG."""
GAP, AXIS = 4, 30
ROW_HEIGHTS = ((4, 30), (8, 24), (16, 19), (10**6, 12))
"""Up to so many stages, rows are so high."""
LEAST_MICRO_BATCHES = 24
"""Of a longer step the beginning is shown, never fewer than warm it up and some."""
MORE_THAN_STAGES = 8
LEAST_NUMBERED = 15
"""Width of a pass that has room for its number."""
UPDATE = "update"
"""Exchange of gradients and optimizer step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """The micro-batch of a pass, written in it."""

    x: float
    text: str
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One stage."""

    name: str
    middle: float
    paths: dict[str, str]
    """By kind: `F`, `B` or `update`."""
    numbers: tuple[Number, ...]
    busy: str
    """Part of the time shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleView:
    """The chart."""

    rows: tuple[Row, ...]
    height: float
    ticks: tuple[tuple[float, str], ...]
    take: str
    """Name of a part of the step."""
    spoken: str


def schedule_view(problem: Problem | None, plan: HybridPlan) -> ScheduleView | None:
    """The chart of a plan; None without a problem, which has the seconds.

    Operators that are placed one by one have no passes to draw.
    """
    if problem is None or plan.step_time is None or plan.placement is not None:
        return None
    most = max(LEAST_MICRO_BATCHES, len(plan.stages) + MORE_THAN_STAGES)
    found = timeline(problem, plan, most)
    return None if found is None or found.end_s == 0 else drawn(found, plan)


def drawn(found: Timeline, plan: HybridPlan) -> ScheduleView:
    """Draw a timeline."""
    count = len(found.stages)
    row_height = next(height for most, height in ROW_HEIGHTS if count <= most)
    rows = tuple(
        row_of(place, passes, found.end_s, row_height)
        for place, passes in enumerate(found.stages)
    )
    shown = f"one step, {seconds_text(found.end_s)}"
    if not found.is_whole:
        shown = (
            f"the first {found.num_micro_batches} of {plan.num_micro_batches} "
            f"micro-batches, {seconds_text(found.end_s)} of a step of "
            f"{seconds_text(plan.step_time.expected_s if plan.step_time else 0)}"
        )
    return ScheduleView(
        rows=rows,
        height=count * (row_height + GAP) + AXIS,
        ticks=tuple(
            (x_of(at, found.end_s), seconds_text(at) if at else "0")
            for at in ticks(0.0, found.end_s)
            if at <= found.end_s
        ),
        take=f"{plan.schedule}, as predicted: {shown}; numbers are micro-batches.",
        spoken=f"{plan.schedule} on {count} stages: {shown}. "
        + "; ".join(f"{row.name} computes {row.busy} of it" for row in rows),
    )


def x_of(at_s: float, end_s: float) -> float:
    """The place of a time."""
    return round(LEFT + (WIDTH - LEFT - RIGHT) * min(at_s / end_s, 1.0), 1)


def row_of(place: int, passes: tuple[TimedPass, ...], end_s: float, height: int) -> Row:
    """Draw one stage."""
    y = place * (height + GAP)
    paths: dict[str, str] = {}
    numbers: list[Number] = []
    for one in passes:
        kind = UPDATE if one.operation is None else str(one.operation.kind)
        left, right = x_of(one.begin_s, end_s), x_of(one.end_s, end_s)
        width = round(right - left, 1)
        if width <= 0:
            continue
        paths[kind] = (
            paths.get(kind, "") + f"M{left:g} {y}h{width:g}v{height}h-{width:g}z"
        )
        if one.operation is not None and width >= LEAST_NUMBERED:
            middle = round((left + right) / 2, 1)
            text = str(one.operation.micro_batch)
            numbers.append(Number(x=middle, text=text, kind=kind))
    busy_s = sum(min(one.end_s, end_s) - one.begin_s for one in passes)
    return Row(
        name=f"stage {place}",
        middle=y + height / 2,
        paths=paths,
        numbers=tuple(numbers),
        busy=f"{busy_s / end_s:.0%}",
    )
