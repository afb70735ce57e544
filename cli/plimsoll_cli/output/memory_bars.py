"""A bar for each rank: how full its device is, up to its load line.

    rank 0  ███████████████████████▌░░░┃  212.5 of 256 MiB, predicted 213.1

Filled: the peak that was measured so far. Shaded: what is predicted still. The line is
what the device has, less the headroom. Where there are few columns the prediction is
left out, then bars grow short, then they go. Called by the view of a run and by
`plan_page`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rich.text import Text

from plimsoll_cli.output.scales import UNITS, ByteScale
from plimsoll_operator.rules.summary import observed_peak_bytes, predicted_peaks
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.text.counts import counted
from plimsoll_planner.units import GIB

WIDTH, LEAST_WIDTH = 28, 6
"""Columns of a bar: where there is room, and below which there is none."""
MOST_RANKS = 8
"""That are drawn; the fullest ones of more of them."""
FULL, PART, AHEAD, LINE = "█", "▌", "░", "┃"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gauge:
    """One rank."""

    rank: int
    measured: int
    """Bytes of its peak so far; 0 before it has reported."""
    predicted: int
    """Bytes."""
    capacity: int
    """Bytes of the load line."""

    @property
    def name(self) -> str:
        """Opening of the line."""
        return f"  rank {self.rank:<3} "

    @property
    def peak_text(self) -> str:
        """The peak and the load line in words."""
        unit, name = self.unit
        measured = self.number(self.measured) if self.measured else "-"
        return f"{measured} of {self.capacity / unit:.4g} {name}"

    @property
    def ahead(self) -> str:
        """The prediction in words."""
        return f", predicted {self.number(self.predicted)}"

    def number(self, num_bytes: int) -> str:
        """Bytes in the unit of the line, or in a smaller one that tells them from 0."""
        text = f"{num_bytes / self.unit[0]:.1f}"
        if text != "0.0" or not num_bytes:
            return text
        return replace(ByteScale.up_to(num_bytes), decimals=0).near(num_bytes)

    @property
    def unit(self) -> tuple[int, str]:
        """Of the bytes in the line."""
        name = ByteScale.up_to(self.capacity).unit
        if name == "GiB" and self.capacity < 10 * GIB:
            name = "MiB"
        return UNITS[name], name


def memory_bars(
    plan: HybridPlan,
    observations: Iterable[Observation],
    capacity_bytes: int = 0,
    columns: int = 80,
) -> list[Text]:
    """Draw the ranks of a plan; the load line `capacity_bytes`, 0: the whole device."""
    measured = {one.rank: observed_peak_bytes(one) for one in observations if one.peaks}
    predicted = predicted_peaks(plan)
    fullest = sorted(predicted, key=lambda rank: -predicted[rank])[:MOST_RANKS]
    gauges = [
        Gauge(
            rank=rank,
            measured=measured.get(rank, 0),
            predicted=predicted[rank],
            capacity=capacity_bytes or plan.offers[stage.offer].device_memory_bytes,
        )
        for stage in plan.stages
        for rank in sorted(set(stage.ranks) & set(fullest))
    ]
    lines = drawn(gauges, columns)
    left = plan.num_gpus - len(lines)
    more = Text(f"  and {counted(left, 'rank')} less full", style="dim")
    return [*lines, *([more] if left else [])]


def drawn(gauges: list[Gauge], columns: int) -> list[Text]:
    """Draw a line for each, all of them alike."""
    names = max(len(one.name) for one in gauges)
    widest = max(len(one.peak_text) for one in gauges)
    room = columns - names - 2 - widest
    ahead = max(len(one.ahead) for one in gauges)
    with_ahead = room - ahead >= LEAST_WIDTH
    width = min(WIDTH, room - ahead if with_ahead else room)
    lines: list[Text] = []
    for one in gauges:
        line = Text(one.name.ljust(names), no_wrap=True, overflow="ellipsis")
        if width >= LEAST_WIDTH:
            line.append_text(bar(one, width))
        line.append(f" {one.peak_text.rjust(widest)}")
        line.append(one.ahead if with_ahead else "", style="dim")
        lines.append(line)
    return lines


def bar(one: Gauge, width: int) -> Text:
    """Draw the bar of one rank, and its load line."""
    halves = round(2 * width * min(one.measured / one.capacity, 1))
    filled = FULL * (halves // 2) + PART * (halves % 2)
    ahead = max(0, round(width * min(one.predicted / one.capacity, 1)) - len(filled))
    text = Text(filled, style="red" if one.measured > one.capacity else "cyan")
    text.append(AHEAD * ahead, style="dim")
    text.append(" " * (width - len(filled) - ahead))
    return text.append(LINE, style="bold")
