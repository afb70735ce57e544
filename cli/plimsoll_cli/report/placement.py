"""Memory of each device over a step, where operators are placed one by one.

In: a record and its plan. Out: a `PlacementView`: charts of bytes over places of the
order, and tables of their peaks. Called by `page`.

    |            ____   load line: bytes for tensors
    |      __o__|    |_     o  the peak
    |  ___|            |__
    |######################   parameters, gradients, optimizer: there at all times
    +--------------------- place in the order of all operators
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plimsoll_cli.output.placement_table import (
    parts_of,
    place_text,
    ranks_text,
    shortened,
)
from plimsoll_cli.output.scales import UNITS, ByteScale
from plimsoll_cli.report.charts import NARROW, RIGHT, Chart, Mark, Plane
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.graph.fullest import over_moments
from plimsoll_planner.graph.placed import require_exact
from plimsoll_planner.records.placement_plan import DevicePeak, PlacementPlan
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.text.placements import (
    HEURISTIC,
    NOTES,
    by_peak,
    fullest_devices,
    rest_lines,
)

MOST_POINTS = 600
"""Of an area: two for each unit of its width; those of 8 devices are some 60 kB."""
FAR = 4
"""A load line so many times above the fullest peak is not drawn."""
Steps = Sequence[tuple[int, int]]
"""First moment and bytes of each stretch of moments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Largest:
    """One contributor to a peak."""

    name: str
    shown: str
    """Its name, without the middle if it is long."""
    text: str
    note: str
    """Kind of the bytes; empty: its value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceView:
    """One device."""

    title: str
    chart: Chart | None
    """None where the graph is not known."""
    largest: tuple[Largest, ...]
    cells: tuple[str, ...]
    """Of its row in the table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementView:
    """The section."""

    take: str
    devices: tuple[DeviceView, ...]
    headings: tuple[str, ...]
    note: str

    @property
    def has_charts(self) -> bool:
        """Whether there is something that needs a legend."""
        return any(device.chart for device in self.devices)


def placement_view(record: RunRecord, plan: HybridPlan) -> PlacementView | None:
    """The section of a plan; None where it has layers."""
    placement = plan.placement
    if placement is None:
        return None
    shown, curve = fullest_devices(placement), curve_of(record, plan, placement)
    page = Page(plan, placement)
    devices = [page.device(device, peak, curve) for device, peak in shown]
    rest = "".join(f"{line[:1].upper()}{line[1:]}. " for line in rest_lines(placement))
    return PlacementView(
        take=page.take(*by_peak(placement)[0]),
        devices=tuple(devices),
        headings=tuple(page.row(*shown[0])),
        note=f"{rest}The passes of all micro-batches follow the same order. "
        f"{HEURISTIC[:1].upper()}{HEURISTIC[1:]}.",
    )


def curve_of(
    record: RunRecord, plan: HybridPlan, placement: PlacementPlan
) -> Curve | None:
    """Bytes at all moments; None unless the record has the graph that was placed."""
    problem = record.problem_of(plan)
    graphs = () if problem is None else problem.profile.graphs
    mine = [one.graph for one in graphs if one.micro_batch == plan.micro_batch]
    try:
        return Curve(require_exact(placement, mine[0])) if mine else None
    except InvalidInputError:
        return None


def size_text(num_bytes: int) -> str:
    """Exact bytes in the unit that suits them."""
    return ByteScale.up_to(num_bytes).near(num_bytes)


class Page:
    """What the devices of a page have in common: a unit, axes, a load line."""

    def __init__(self, plan: HybridPlan, placement: PlacementPlan) -> None:
        """Choose them."""
        self.plan, self.placement = plan, placement
        self.capacity_bytes = placement.capacity_bytes
        most_bytes = placement.peak_bytes
        self.is_far = self.capacity_bytes > FAR * most_bytes
        if not self.is_far:
            most_bytes = max(most_bytes, self.capacity_bytes)
        self.unit = ByteScale.up_to(most_bytes).unit
        self.length = len(placement.order)
        self.plane = Plane.holding(
            [(0.0, 0.0), (self.length + 0.5, self.height(most_bytes))],
            y_zero=True,
            right=NARROW if self.is_far else RIGHT,
        )

    def take(self, device: int, peak: DevicePeak) -> str:
        """The message of the charts, in a sentence, from the fullest device."""
        far = ", which is above the charts" if self.is_far else ""
        place = place_text(self.placement, peak)
        when = "as the optimizer steps"
        if peak.place < self.length:
            when = f"at {place}"
        return (
            f"Device {device} is the fullest: {size_text(peak.peak_bytes)} of tensors "
            f"{when}, {self.part(peak)} of the load line of "
            f"{size_text(self.capacity_bytes)}{far}."
        )

    def part(self, peak: DevicePeak) -> str:
        """A peak as a part of the load line."""
        return f"{peak.peak_bytes / self.capacity_bytes:.1%}"

    def device(self, device: int, peak: DevicePeak, curve: Curve | None) -> DeviceView:
        """One device."""
        return DeviceView(
            title=self.title(device, peak),
            chart=None
            if curve is None
            else self.chart(device, peak, over_moments(curve, device, MOST_POINTS)),
            largest=tuple(self.largest(peak)),
            cells=tuple(self.row(device, peak).values()),
        )

    def title(self, device: int, peak: DevicePeak) -> str:
        """Device and peak."""
        most = size_text(peak.peak_bytes)
        return f"Device {device}: {most} at most, {self.part(peak)} of the load line"

    def row(self, device: int, peak: DevicePeak) -> dict[str, str]:
        """Cells of a device by their headings."""
        ranks = self.plan.stages[device].ranks
        parts = {
            name.capitalize(): size_text(num_bytes)
            for name, num_bytes in parts_of(peak).items()
        }
        return {
            "Device": f"device {device}",
            **({"Ranks": ranks_text(ranks)} if len(ranks) > 1 else {}),
            "Peak": size_text(peak.peak_bytes),
            "Of load line": self.part(peak),
            "Peak at": place_text(self.placement, peak),
            **parts,
        }

    def largest(self, peak: DevicePeak) -> Iterator[Largest]:
        """Yield what is largest at a peak."""
        for one in peak.contributors:
            yield Largest(
                name=one.name,
                shown=shortened(one.name),
                text=size_text(one.num_bytes),
                note=NOTES.get(one.kind, ""),
            )

    def chart(self, device: int, peak: DevicePeak, steps: Steps) -> Chart:
        """Draw what a device holds over the order."""
        plane = self.plane
        floor, top = map(self.y, (peak.state_bytes, peak.peak_bytes))
        most, state = map(size_text, (peak.peak_bytes, peak.state_bytes))
        return Chart(
            title=self.title(device, peak),
            spoken=f"Bytes of tensors on device {device} at each place of the order of "
            f"{self.length:,} operators: at most {most}, {self.part(peak)} of the load "
            f"line, at place {peak.place:,}; {state} of it are there at all times.",
            x_label="place in the order of operators",
            y_label=self.unit,
            x_ticks=plane.x_ticks(whole=True),
            y_ticks=plane.y_ticks(),
            area=self.area(steps, floor),
            band=(floor, round(plane.y(0) - floor, 1)),
            rule=None if self.is_far else (self.y(self.capacity_bytes), "load line"),
            marks=(Mark(x=plane.x(peak.place), y=top, text=""),),
            right=plane.right,
        )

    def height(self, num_bytes: int) -> float:
        """Bytes in the unit of the charts."""
        return num_bytes / UNITS[self.unit]

    def y(self, num_bytes: int) -> float:
        """Place of bytes from top to bottom."""
        return self.plane.y(self.height(num_bytes))

    def area(self, steps: Steps, floor: float) -> str:
        """Path around steps above a floor; a place has two moments."""
        path, before = [f"M{self.plane.x(0):g} {floor:g}"], floor
        for moment, num_bytes in steps:
            height = self.y(num_bytes)
            if height != before:
                path.append(f"H{self.plane.x(moment / 2):g}V{height:g}")
            before = height
        return "".join([*path, f"H{self.plane.x(self.length + 0.5):g}V{floor:g}Z"])
