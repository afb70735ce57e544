"""Memory against speed for as many devices as the plan has, as a chart and a table.

In: an answer with a `Frontier`, the plan. Out: a `FrontierView`. Called by `page`.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_cli.output.frontier_table import Curve, curve_of, curve_rows, is_proven
from plimsoll_cli.output.scales import UNITS
from plimsoll_cli.report.charts import Chart, Mark, Plane
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.text.counts import gpus_text

NEAR = 0.5
"""Numbers that are all above this part of the largest are not drawn from 0 on."""

CAP = 3
"""Half of the width of the end of a whisker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontierView:
    """The curve."""

    chart: Chart
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The fastest first."""
    this: int
    """Row of the plan."""
    count: str
    capacity: str
    is_far: bool
    """The capacity is above the chart."""
    is_open: bool
    """Some bounds are not known."""


def frontier_view(answer: Solution) -> FrontierView | None:
    """The curve of an answer; None if it has none, or a single point."""
    if answer.frontier is None:
        return None
    curve = curve_of(answer.frontier, answer.plan)
    if len(curve.points) == 1:
        return None
    rows = [
        {name: cell for name, cell in row.items() if name != "PLAN"}
        for row in curve_rows(curve)
    ]
    return FrontierView(
        chart=chart_of(curve),
        headings=tuple(name.capitalize() for name in rows[0]),
        rows=tuple(tuple(row.values()) for row in rows),
        this=curve.place,
        count=gpus_text(answer.frontier.num_gpus, answer.plan.offers),
        capacity=curve.scale.down(answer.frontier.capacity_bytes),
        is_far=not curve.shows_capacity,
        is_open=any(not point.least_peak_bytes for point in curve.points),
    )


def chart_of(curve: Curve) -> Chart:
    """Draw what is found at each speed, what might do, and the points."""
    unit = UNITS[curve.scale.unit]
    rates = [point.samples_per_s for point in curve.points]
    capacity = curve.frontier.capacity_bytes / unit
    bounds = [p.least_peak_bytes / unit for p in curve.points if p.least_peak_bytes]
    heights = [*bounds, *(p.peak_bytes / unit for p in curve.points)]
    heights += [capacity] if curve.shows_capacity else []
    corners = [(min(rates), min(heights)), (max(rates), max(heights))]
    plane = Plane.holding(
        corners,
        x_zero=min(rates) < NEAR * max(rates),
        y_zero=min(heights) < NEAR * max(heights),
    )
    marks = [
        Mark(
            x=plane.x(point.samples_per_s),
            y=plane.y(point.peak_bytes / unit),
            text="",
            is_chosen=place == curve.place,
        )
        for place, point in enumerate(curve.points)
    ]
    return Chart(
        title="Peak over speed",
        spoken=f"Upper bound of the fullest device's peak in {curve.scale.unit} over "
        f"samples per second, at {len(marks)} speeds; the filled mark is this plan. "
        "The table has the numbers.",
        x_label="samples/s",
        y_label=f"peak, {curve.scale.unit}",
        x_ticks=plane.x_ticks(),
        y_ticks=plane.y_ticks(),
        line=plane.line(stairs(curve, plane.x_low, unit)),
        whiskers=whiskers(curve, plane, unit),
        rule=(plane.y(capacity), "load line") if curve.shows_capacity else None,
        marks=tuple(sorted(marks, key=lambda mark: mark.is_chosen)),
    )


def stairs(curve: Curve, slowest: float, unit: int) -> list[tuple[float, float]]:
    """Corners of what was found over the rate, the fastest point first.

    Each point stands for all lower rates down to the next one.
    """
    points = curve.frontier.points
    rates = [*(point.samples_per_s for point in points[1:]), slowest]
    return [
        corner
        for point, low in zip(points, rates, strict=True)
        for corner in (
            (point.samples_per_s, point.peak_bytes / unit),
            (low, point.peak_bytes / unit),
        )
    ]


def whiskers(curve: Curve, plane: Plane, unit: int) -> str:
    """Lines from points down to their bounds, if these are known and lower."""
    return "".join(
        f"M{plane.x(point.samples_per_s):g} {plane.y(point.peak_bytes / unit):g}"
        f"V{plane.y(point.least_peak_bytes / unit):g}m-{CAP} 0h{2 * CAP}"
        for point in curve.points
        if point.least_peak_bytes and not is_proven(point)
    )
