"""Other numbers of devices and micro-batches: tables of cells, and the Pareto front.

In: an answer with a `Grid`, and its question. Out: a `GridView`. Called by `page`. On
the front are the cells that no other one beats in devices, or price, and speed. Peaks
are not compared: all of them fit, and each micro-batch has another one, so that hardly
a cell would be beaten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from plimsoll_cli.output.grid_table import (
    CellWords,
    KindOfDevice,
    grid_lines,
    kind_title,
    kinds_of,
)
from plimsoll_cli.output.scales import UNITS, ByteScale
from plimsoll_cli.report.charts import (
    NARROW,
    Chart,
    Mark,
    Plane,
    Point,
    Tick,
    uncrowded,
)
from plimsoll_cli.report.proof import sentence
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.text.counts import device_noun, gpus_text

WIDE = 8
"""Numbers whose largest is so many times the smallest are drawn by their logarithm."""
ROOM = 0.03
"""Part of the width on both sides of the marks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellView:
    """One cell of a table."""

    words: CellWords
    tone: str
    """Class of its look; its words say the same."""
    title: str
    """All of it in a line, for a pointer that rests on it."""
    is_front: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RowView:
    """One number of devices."""

    name: str
    price: str
    """Per hour, of each cell that fits; empty if they differ, or it is not known."""
    cells: tuple[CellView | None, ...]
    """One for each micro-batch of the table; None: the batch has no such one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KindView:
    """The table of one kind of device."""

    title: str
    fits: str
    """How many of its cells fit."""
    micro_batches: tuple[int, ...]
    rows: tuple[RowView, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GridView:
    """The section."""

    kinds: tuple[KindView, ...]
    charts: tuple[Chart, ...]
    """Empty where fewer than two cells fit; then there is no front either."""
    compared: str
    """End of the sentence on cells that no other one is as fast as."""
    noun: str
    notes: tuple[str, ...]


def grid_view(
    answer: Solution | Infeasible, problem: Problem | None
) -> GridView | None:
    """The cells of an answer; None if it has none."""
    if answer.grid is None:
        return None
    kinds = kinds_of(answer, problem)
    every = [words for kind in kinds for row in kind.rows.values() for words in row]
    fitting = [words for words in every if words.cell.plan is not None]
    effort = effort_of(fitting, kinds)
    front = front_of(fitting, effort) if len(fitting) > 1 else []
    return GridView(
        kinds=tuple(kind_view(kind, front) for kind in kinds),
        charts=charts_of(fitting, front, effort) if front else (),
        compared=effort.bound,
        noun=effort.noun,
        notes=tuple(map(sentence, grid_lines(answer.grid))),
    )


def kind_view(kind: KindOfDevice, front: Sequence[CellWords]) -> KindView:
    """The table of one offer."""
    rows: list[RowView] = []
    for count, cells in kind.rows.items():
        found = {
            one.cell.micro_batch: cell_view(kind, one, one in front) for one in cells
        }
        prices = {one.price for one in cells if one.cell.plan is not None}
        rows.append(
            RowView(
                price=prices.pop() if len(prices) == 1 else "",
                name=gpus_text(count, [kind.offer]),
                cells=tuple(found.get(b) for b in kind.micro_batches),
            )
        )
    every = [one.cell for cells in kind.rows.values() for one in cells]
    num_fitting = sum(one.plan is not None for one in every)
    return KindView(
        title=kind_title(kind),
        fits=f"{num_fitting} of {len(every)} fit",
        micro_batches=kind.micro_batches,
        rows=tuple(rows),
    )


def cell_view(kind: KindOfDevice, words: CellWords, is_front: bool) -> CellView:
    """One cell."""
    verdict = words.cell.verdict
    return CellView(
        words=words,
        tone="late" if verdict is None else str(verdict),
        title=title_of(kind, words),
        is_front=is_front,
    )


def title_of(kind: KindOfDevice, words: CellWords) -> str:
    """A cell in a line."""
    cell = words.cell
    count = gpus_text(cell.num_gpus, [kind.offer])
    rate = f"{words.rate} samples/s" if words.rate else ""
    head = [f"{count}, micro-batch {cell.micro_batch}: {words.verdict}"]
    parts = [*head, words.peak, rate, words.price, words.why, *words.about]
    return "; ".join(filter(None, parts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """Cost of a cell, in devices or money, that the front compares."""

    noun: str
    currency: str | None
    """Of prices; None: numbers of devices are compared.

    Those of several kinds say little, so prices are taken, if all are known."""

    @property
    def label(self) -> str:
        """Name of the numbers, along an axis."""
        return f"price, {self.currency}/h" if self.currency else f"{self.noun}s"

    @property
    def bound(self) -> str:
        """End of a sentence: as few devices, or as low a price."""
        return "at as low a price" if self.currency else f"with as few {self.noun}s"

    def of(self, words: CellWords) -> float:
        """The number of a cell that fits."""
        cell = words.cell
        return float(cell.price_per_hour or 0) if self.currency else cell.num_gpus


def effort_of(fitting: Sequence[CellWords], kinds: Sequence[KindOfDevice]) -> Effort:
    """Numbers that all cells have."""
    offers = [kind.offer for kind in kinds]
    currencies = {offer.currency for offer in offers}
    is_priced = all(one.cell.price_per_hour is not None for one in fitting)
    has_price = len(offers) > 1 and len(currencies) == 1 and is_priced
    return Effort(
        noun=device_noun(offers), currency=currencies.pop() if has_price else None
    )


def front_of(fitting: Sequence[CellWords], effort: Effort) -> list[CellWords]:
    """The cells that no other one beats."""
    # Imported here, for most reports have no grid and need no numpy.
    from plimsoll_planner.search.front import unbeaten  # noqa: PLC0415

    return unbeaten(fitting, lambda one: (effort.of(one), -rate_of(one)))


def rate_of(words: CellWords) -> float:
    """Samples per second of a cell; 0 if nothing fits."""
    plan = words.cell.plan
    return 0.0 if plan is None else plan.samples_per_s


def peak_of(words: CellWords) -> int:
    """Upper bound of the fullest device, bytes; 0 if nothing fits."""
    plan = words.cell.plan
    return 0 if plan is None else plan.peak_bytes


def charts_of(
    fitting: Sequence[CellWords], front: Sequence[CellWords], effort: Effort
) -> tuple[Chart, ...]:
    """Draw what a speed takes in devices, or money, and in memory."""
    scale = ByteScale.up_to(max(map(peak_of, fitting)))
    heights = [peak_of(one) / UNITS[scale.unit] for one in fitting]
    label = effort.label
    spoken = (
        f"of {len(fitting)} cells that fit over their samples per second; a ring says "
        f"its number of {effort.noun}s, the filled one is this plan. The tables have "
        "the numbers."
    )
    by_effort = Drawing(
        fitting=fitting, front=front, heights=[*map(effort.of, fitting)]
    )
    by_peak = Drawing(fitting=fitting, front=front, heights=heights)
    return (
        replace(
            by_effort.chart(label, has_line=True),
            title="Price over speed" if effort.currency else f"{label} over speed",
            spoken=f"{label[:1].upper()}{label[1:]}, {spoken}",
        ),
        replace(
            by_peak.chart(f"peak, {scale.unit}"),
            title="Peak over speed",
            spoken=f"Upper bound of the peak in {scale.unit}, {spoken}",
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """Cells as marks: those of the front are rings that say their devices."""

    fitting: Sequence[CellWords]
    front: Sequence[CellWords]
    heights: Sequence[float]
    """Of each cell that fits."""

    def chart(self, y_label: str, *, has_line: bool = False) -> Chart:
        """Draw the cells over their samples per second; a line is the least height."""
        rates = [*map(rate_of, self.fitting)]
        across, up = Axis.of(rates), Axis.of(self.heights)
        points = [
            (across.place(rate), up.place(height))
            for rate, height in zip(rates, self.heights, strict=True)
        ]
        low, high = min(x for x, _ in points), max(x for x, _ in points)
        room = ROOM * ((high - low) or 1.0)
        plane = Plane.holding(
            [*points, (low - room, points[0][1]), (high + room, points[0][1])],
            x_zero=not across.is_log,
            y_zero=not up.is_log,
            right=NARROW,
        )
        marks = [
            Mark(
                x=plane.x(x),
                y=plane.y(y),
                text=str(words.cell.num_gpus)
                if words.is_this or words in self.front
                else "",
                is_chosen=words.is_this,
                is_front=words in self.front,
            )
            for words, (x, y) in zip(self.fitting, points, strict=True)
        ]
        return Chart(
            title="",
            spoken="",
            x_label="samples/s",
            y_label=y_label,
            x_ticks=across.texts(plane.x_ticks()),
            y_ticks=up.texts(plane.y_ticks()),
            line=plane.line(stairs(points, plane.x_low)) if has_line else "",
            marks=uncrowded(marks),
            right=NARROW,
        )


def stairs(points: Sequence[Point], slowest: float) -> list[Point]:
    """Corners of the least height over the rate, the fastest point first.

    Each point stands for all lower rates, down to that of the next lower one.
    """
    # Imported here, for most reports have no grid and need no numpy.
    from plimsoll_planner.search.front import unbeaten  # noqa: PLC0415

    steps = sorted(unbeaten(points, lambda point: (-point[0], point[1])), reverse=True)
    rates = [*(x for x, _ in steps[1:]), slowest]
    return [
        corner
        for (x, y), low in zip(steps, rates, strict=True)
        for corner in ((x, y), (low, y))
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """An axis, by the logarithm to base 2 if its numbers are far apart."""

    is_log: bool

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Axis:
        """The axis of some numbers."""
        low, high = min(numbers), max(numbers)
        return cls(is_log=0 < low * WIDE < high)

    def place(self, number: float) -> float:
        """Place of a number along the axis."""
        return math.log2(number) if self.is_log else number

    def texts(self, ticks: Sequence[Tick]) -> tuple[Tick, ...]:
        """Ticks as people read them: of logarithms the whole ones, as numbers."""
        if not self.is_log:
            return tuple(ticks)
        return tuple(
            (at, f"{2 ** float(text):.6g}")
            for at, text in ticks
            if float(text).is_integer()
        )
