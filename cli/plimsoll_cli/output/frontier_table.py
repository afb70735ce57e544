"""Memory against speed as a table and in sentences.

In: a `Frontier` and the plan beside it. Out: rows, tables, lines. Called by `plan`, and
by the report for its own table. The picture is in `frontier_plot`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Context

from rich.table import Table

from plimsoll_cli.output.scales import ByteScale, seconds_text
from plimsoll_cli.output.tables import table_of, telling_columns
from plimsoll_planner.records.frontier import Frontier, FrontierPoint
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.solution import LEAST_GAP
from plimsoll_planner.text.counts import gpus_text
from plimsoll_planner.text.plans import each_of
from plimsoll_planner.units import number_text

THIS, OTHER = "@", "o"
"""Marks of the plan and of other points, in table and picture."""
PROVEN = "proven"
LESS_IMPORTANT = (
    *("SHARDED", "REPLICAS", "MICRO-BATCH", "IN FLIGHT"),
    *("RECOMPUTE", "STEP", "STAGES", "AT LEAST"),
)
DOWN = Context(prec=4, rounding=ROUND_DOWN)
"""A rate that is shown can be asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A frontier with the plan among its points, the fastest first."""

    frontier: Frontier
    plan: HybridPlan
    points: tuple[FrontierPoint, ...]
    place: int
    """Of the plan among the points."""

    @property
    def scale(self) -> ByteScale:
        """Unit of all bytes."""
        return ByteScale.up_to(self.frontier.capacity_bytes)

    @property
    def shows_capacity(self) -> bool:
        """Whether the memory of a device is near enough to be drawn."""
        return self.frontier.capacity_bytes <= 2 * self.most_bytes

    @property
    def most_bytes(self) -> int:
        """Largest peak."""
        return max(point.peak_bytes for point in self.points)

    @property
    def highest_bytes(self) -> int:
        """Largest number of bytes that is drawn."""
        return self.frontier.capacity_bytes if self.shows_capacity else self.most_bytes

    def least_at(self, samples_per_s: float) -> int | None:
        """Least peak that was found at a rate, bytes; None if no point is as fast."""
        fast = [p for p in self.frontier.points if p.samples_per_s >= samples_per_s]
        return fast[-1].peak_bytes if fast else None


def curve_of(frontier: Frontier, plan: HybridPlan) -> Curve:
    """Put the plan among the points, if it is none of them."""
    own = FrontierPoint.of(plan, 0)
    for place, point in enumerate(frontier.points):
        bounds = point.peak_bytes, point.least_peak_bytes
        # Its peaks may have been replayed since, and are not the formula's then.
        if point == replace(own, peak_bytes=bounds[0], least_peak_bytes=bounds[1]):
            return Curve(
                frontier=frontier, plan=plan, points=frontier.points, place=place
            )
    points = sorted([*frontier.points, own], key=lambda point: -point.samples_per_s)
    return Curve(
        frontier=frontier,
        plan=plan,
        points=tuple(points),
        place=points.index(own),
    )


def curve_table(curve: Curve) -> Table:
    """A line for each point."""
    return table_of(curve_rows(curve), left=("PLAN",))


def curve_rows(curve: Curve) -> list[dict[str, str]]:
    """Cells of each point, the fastest first."""
    num_layers = curve.plan.stages[-1].chunks[-1].end_layer
    rows = [
        {
            "PLAN": f"{THIS} this" if place == curve.place else OTHER,
            **point_cells(point, curve.scale, num_layers),
        }
        for place, point in enumerate(curve.points)
    ]
    return telling_columns(rows)


def point_cells(
    point: FrontierPoint, scale: ByteScale, num_layers: int
) -> dict[str, str]:
    """Cells of one point, with a dash for a bound that is not known."""
    least = scale.down(point.least_peak_bytes) if point.least_peak_bytes else "-"
    caps, offloaded = point.in_flight_caps, sum(point.num_offloaded)
    return {
        "SAMPLES/S": rate_text(point.samples_per_s),
        "STEP": seconds_text(point.step_time.expected_s),
        "PEAK": scale.up(point.peak_bytes),
        "AT LEAST": PROVEN if is_proven(point) else least,
        "STAGES": str(point.mesh.pipeline),
        "REPLICAS": str(point.mesh.data),
        "TENSOR": str(point.mesh.tensor),
        "MICRO-BATCH": str(point.micro_batch),
        "IN FLIGHT": f"{caps[0]}-{caps[-1]}" if caps[0] > caps[-1] else str(caps[0]),
        "RECOMPUTE": f"{sum(point.num_recomputed)} of {num_layers}",
        "OFFLOAD": f"{offloaded} of {num_layers}" if offloaded else "-",
        "SHARDED": each_of(point.shardings),
        "OPTIMIZER": each_of(point.optimizer_homes),
    }


def is_proven(point: FrontierPoint) -> bool:
    """Whether no plan as fast is known to be possible that needs less."""
    return point.least_peak_bytes >= (1 - LEAST_GAP) * point.peak_bytes


def rate_text(samples_per_s: float) -> str:
    """A rate in four digits, never above what it is."""
    return number_text(float(DOWN.create_decimal_from_float(samples_per_s)))


def curve_lines(curve: Curve) -> list[str]:
    """The curve in sentences: its ends, how sure it is, how to plan by a point."""
    fast, slow = curve.frontier.points[0], curve.frontier.points[-1]
    count = gpus_text(curve.frontier.num_gpus, curve.plan.offers)
    up = curve.scale.up
    if len(curve.points) == 1:
        return [f"{count}: nothing lighter was found at any lower speed"]
    less = 1 - slow.peak_bytes / fast.peak_bytes
    slower = 1 - slow.samples_per_s / (fast.samples_per_s or 1.0)
    return [
        f"{count}: from {up(fast.peak_bytes)} at {rate_text(fast.samples_per_s)} "
        f"samples/s to {up(slow.peak_bytes)} at {rate_text(slow.samples_per_s)} "
        f"samples/s, {less:.1%} less memory and {slower:.1%} slower; found in "
        f"{seconds_text(curve.frontier.search_s)}",
        f"AT LEAST: no plan as fast needs less; {PROVEN}: none needs less than that "
        "peak",
        "to plan by another point, ask the same with --objective MinimizeMemory "
        f"--gpus {curve.frontier.num_gpus} and its samples/s as --min-throughput",
    ]
