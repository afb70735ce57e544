"""Memory against speed as a picture of letters, for a terminal or a log file.

    GiB
    4 |==================================================   = memory of a device
      |                                                o    o a plan
      |                                            @        @ this plan
    2 |o...............................................     . least that was found
      +--------------------------------------------------
       0.2          0.4          0.6          samples/s

In: a `Curve`. Out: lines; none where there is no room, or only one point. Called by
`plan`, beside the table of `frontier_table`, which has the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby

from rich.text import Text

from plimsoll_cli.output.frontier_table import OTHER, THIS, Curve
from plimsoll_cli.output.scales import UNITS, ticks

HEIGHT, WIDTH, LEAST_WIDTH = 14, 72, 28
"""Rows and columns between the axes: where there is room, and below which there is
none."""
CAPACITY, FOUND = "=", "."
STYLES = {THIS: "bold green", OTHER: "cyan", CAPACITY: "red", FOUND: "dim"}
NEAR = 0.5
"""A least above this part of the most is no longer drawn from 0 on."""

Cell = tuple[int, int]
"""Column and row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """Places of numbers along some cells."""

    low: float
    high: float
    cells: int

    @classmethod
    def of(cls, least: float, most: float, cells: int) -> Axis:
        """An axis from one round number to another; from 0 on, unless all are high."""
        found = ticks(least if least > NEAR * most else 0.0, most)
        return cls(low=found[0], high=found[-1], cells=cells)

    def place(self, number: float) -> int:
        """Cell of a number."""
        part = (number - self.low) / (self.high - self.low)
        return round(part * (self.cells - 1))

    def number(self, place: int) -> float:
        """Number in the middle of a cell."""
        return self.low + (self.high - self.low) * place / (self.cells - 1)

    @property
    def marks(self) -> dict[int, str]:
        """Round numbers by their cell."""
        found = ticks(self.low, self.high)
        return {self.place(number): f"{number:.6g}" for number in found}


@dataclass(kw_only=True)
class Sheet:
    """Cells between two axes; the row 0 is the lowest."""

    x: Axis
    y: Axis
    cells: dict[tuple[int, int], str] = field(
        default_factory=dict[tuple[int, int], str]
    )

    def line(self, row: int) -> Text:
        """One row of cells."""
        text = Text(no_wrap=True)
        cells = (self.cells.get((column, row), " ") for column in range(self.x.cells))
        for cell, alike in groupby(cells):
            text.append("".join(alike), style=STYLES.get(cell, ""))
        return text


def curve_picture(curve: Curve, columns: int) -> list[Text]:
    """Draw the curve in at most so many columns; nothing if these are too few."""
    unit = UNITS[curve.scale.unit]
    rates = [point.samples_per_s for point in curve.points]
    peaks = [point.peak_bytes / unit for point in curve.points]
    y = Axis.of(min(peaks), curve.highest_bytes / unit, HEIGHT)
    left = max(map(len, [curve.scale.unit, *y.marks.values()]))
    width = min(WIDTH, columns - left - 3)
    if width < LEAST_WIDTH or len(curve.points) == 1:
        return []
    sheet = Sheet(x=Axis.of(min(rates), max(rates), width), y=y)
    draw(sheet, curve, unit)
    rows = [
        Text(f"{y.marks.get(row, ''):>{left}} |").append_text(sheet.line(row))
        for row in range(HEIGHT - 1, -1, -1)
    ]
    lines = [
        Text(f"{curve.scale.unit:>{left}}  peak of the fullest device"),
        *rows,
        Text(f"{'':{left}} +{'-' * width}"),
        Text(f"{'':{left}}  {below(sheet.x)}"),
        Text(f"{'':{left}}  {'samples/s':>{width}}"),
    ]
    for line in lines:
        line.rstrip()
    return lines


def draw(sheet: Sheet, curve: Curve, unit: int) -> None:
    """Draw what is found at each speed, then the memory of a device, then plans."""
    before: int | None = None
    for column in range(sheet.x.cells - 1, -1, -1):
        least = curve.least_at(sheet.x.number(column))
        if least is None:
            continue
        row = sheet.y.place(least / unit)
        for between in range(row, row + 1 if before is None else max(before, row + 1)):
            sheet.cells[column, between] = FOUND
        before = row
    if curve.shows_capacity:
        row = sheet.y.place(curve.frontier.capacity_bytes / unit)
        sheet.cells |= {(column, row): CAPACITY for column in range(sheet.x.cells)}
    order = [*range(len(curve.points)), curve.place]
    for place in order:
        point = curve.points[place]
        cell = (
            sheet.x.place(point.samples_per_s),
            sheet.y.place(point.peak_bytes / unit),
        )
        sheet.cells[cell] = THIS if place == curve.place else OTHER


def below(axis: Axis) -> str:
    """Round numbers below their cells, as many as have room."""
    text = ""
    for place, mark in sorted(axis.marks.items()):
        start = min(place - len(mark) // 2, axis.cells - len(mark))
        if start > len(text) or not text:
            text = f"{text:{max(start, 0)}}{mark}"
    return text


def legend(curve: Curve) -> str:
    """Meaning of the letters, in one line."""
    memory = curve.scale.down(curve.frontier.capacity_bytes)
    device = f"memory of a device, {memory}"
    line = f"{CAPACITY} {device}" if curve.shows_capacity else f"{device}, is above"
    return (
        f"{THIS} this plan   {OTHER} another plan   "
        f"{FOUND} least found at that speed   {line}"
    )
