"""The plan among its alternatives, as points and as a table.

In: an answer and the plan. Out: a `ChoicesView`. Called by `page`.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_cli.output.answer_tables import alternative_rows
from plimsoll_cli.output.rate_floor import RateFloor
from plimsoll_cli.output.scales import UNITS, ByteScale
from plimsoll_cli.report.charts import NARROW, Chart, Mark, Plane, uncrowded
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution

HEADINGS = {"GPUS": "GPUs"}
"""Of which more than the first letter is a capital."""
ROOM = 1.06
"""Beyond the fastest plan, for its mark."""
MOST_ROWS = 40
"""The rest of a long front is not listed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoicesView:
    """The front."""

    chart: Chart
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The plan is the first."""
    num_left_out: int


def choices_view(answer: Solution, problem: Problem | None) -> ChoicesView | None:
    """The plan and its alternatives; None where there are none."""
    if not answer.alternatives:
        return None
    plans = (answer.plan, *answer.alternatives)
    shown = plans[:MOST_ROWS]
    num_steps = None if problem is None else problem.num_steps
    rows = alternative_rows(shown, num_steps, RateFloor.of(answer, problem))
    return ChoicesView(
        chart=front(plans),
        headings=tuple(HEADINGS.get(name, name.capitalize()) for name in rows[0]),
        rows=tuple(tuple(row.values()) for row in rows),
        num_left_out=len(plans) - len(shown),
    )


def front(plans: tuple[HybridPlan, ...]) -> Chart:
    """Draw the peak of each plan over its samples/s; a mark says its devices."""
    scale = ByteScale.up_to(max(plan.peak_bytes or 0 for plan in plans))
    size = UNITS[scale.unit]
    points = [
        (plan.samples_per_s or 0.0, (plan.peak_bytes or 0) / size) for plan in plans
    ]
    fastest = max(x for x, _ in points)
    beyond = (fastest * ROOM, points[0][1])
    plane = Plane.holding([*points, beyond], x_zero=True, y_zero=True, right=NARROW)
    marks = [
        Mark(
            x=plane.x(x),
            y=plane.y(y),
            text=str(plan.num_gpus),
            is_chosen=plan is plans[0],
            is_front=True,
        )
        for plan, (x, y) in zip(plans, points, strict=True)
    ]
    return Chart(
        title="Peak over speed",
        spoken=f"Upper bound of the fullest device's peak in {scale.unit} over samples "
        f"per second of {len(plans)} plans; a ring says its number of devices, and "
        "the filled one is this plan. The table has the numbers.",
        x_label="samples/s",
        y_label=f"peak, {scale.unit}",
        x_ticks=plane.x_ticks(),
        y_ticks=plane.y_ticks(),
        marks=uncrowded(marks),
        right=NARROW,
    )
