"""Lines and points between two axes, as coordinates of an SVG.

In: pairs of numbers. Out: a `Chart`. Called for all charts of a page. Coordinates are
rounded to a tenth; a long line is thinned to what can be seen, its extremes kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from plimsoll_cli.output.scales import ticks

WIDTH, HEIGHT = 460, 230
LEFT, RIGHT, TOP, BOTTOM = 60, 84, 14, 40
"""Margins around the axes; units of the SVG."""
NARROW = 26
"""Margin on the right for rings alone, without a text beside the last mark."""
RING_HEIGHT, RING_ROOM, DIGIT = 18, 10, 8
"""Height of a ring, its width without digits, and that of a digit."""
MOST_BUCKETS = 200
"""Of a line; each keeps its least and its most."""
Point = tuple[float, float]
Tick = tuple[float, str]
"""A place along an axis, and what it says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A point with a text."""

    x: float
    y: float
    text: str
    is_chosen: bool = False
    is_front: bool = False
    """No other one beats it."""

    @property
    def width(self) -> int:
        """Width of the ring that holds the text."""
        return max(RING_HEIGHT, RING_ROOM + DIGIT * len(self.text))

    def overlaps(self, other: Mark) -> bool:
        """Whether two rings cover each other."""
        is_beside = 2 * abs(self.x - other.x) >= self.width + other.width
        return not is_beside and abs(self.y - other.y) < RING_HEIGHT


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One plot; what it does not have is empty."""

    title: str
    spoken: str
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    line: str = ""
    """Points of a polyline."""
    area: str = ""
    """Path of an area."""
    whiskers: str = ""
    """Path of lines from marks down to their bounds."""
    band: tuple[float, float] | None = None
    """Top and height of a band."""
    rule: tuple[float, str] | None = None
    """Height of a horizontal line, and its text."""
    marks: tuple[Mark, ...] = ()
    right: int = RIGHT
    """Margin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plane:
    """The area between the axes."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    right: int = RIGHT
    """Margin."""

    @classmethod
    def holding(
        cls,
        points: Sequence[Point],
        *,
        x_zero: bool = False,
        y_zero: bool = False,
        right: int = RIGHT,
    ) -> Plane:
        """A plane that holds all points, one or more, between round heights.

        With `x_zero` it begins at 0 on the left, with `y_zero` at the bottom.
        """
        xs, ys = [x for x, _ in points], [y for _, y in points]
        heights = ticks(0.0 if y_zero else min(ys), max(ys))
        return cls(
            x_low=0.0 if x_zero else min(xs),
            x_high=max(xs),
            y_low=heights[0],
            y_high=heights[-1],
            right=right,
        )

    def x(self, value: float) -> float:
        """Place of a value from left to right."""
        part = (value - self.x_low) / ((self.x_high - self.x_low) or 1.0)
        return round(LEFT + (WIDTH - LEFT - self.right) * part, 1)

    def y(self, value: float) -> float:
        """Place of a value from top to bottom."""
        part = (value - self.y_low) / (self.y_high - self.y_low)
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part, 1)

    def x_ticks(self, *, whole: bool = False) -> tuple[Tick, ...]:
        """The round numbers from left to right, or only the whole ones."""
        return tuple(
            (self.x(at), f"{at:.6g}")
            for at in ticks_within(self.x_low, self.x_high)
            if not (whole and at % 1)
        )

    def y_ticks(self) -> tuple[Tick, ...]:
        """The round numbers from bottom to top."""
        found = ticks_within(self.y_low, self.y_high)
        return tuple((self.y(at), f"{at:.6g}") for at in found)

    def line(self, points: Sequence[Point]) -> str:
        """A polyline."""
        return " ".join(f"{self.x(x):g},{self.y(y):g}" for x, y in thinned(points))


def ticks_within(low: float, high: float) -> list[float]:
    """Round numbers of a range, without those that hold it from outside."""
    slack = 1e-9 * (high - low)  # multiples of a step are rounded
    return [at for at in ticks(low, high) if low - slack <= at <= high + slack]


def uncrowded(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """The marks, without the texts of rings that would cover an earlier one.

    What is chosen keeps its text; the order is for drawing: it is the last.
    """
    kept: list[Mark] = []
    found: list[Mark] = []
    for mark in sorted(marks, key=lambda one: not one.is_chosen):
        if mark.text and any(map(mark.overlaps, kept)):
            found.append(replace(mark, text=""))
            continue
        found.append(mark)
        kept += [mark] if mark.text else []
    return tuple(
        sorted(found, key=lambda one: (one.is_chosen, bool(one.text), one.is_front))
    )


def thinned(points: Sequence[Point]) -> list[Point]:
    """The least and the most of every run of points, in their order."""
    size = -(-len(points) // MOST_BUCKETS)
    if size <= 2:  # noqa: PLR2004 - a run of two is its least and its most
        return list(points)
    kept: list[Point] = []
    for first in range(0, len(points), size):
        run = points[first : first + size]
        kept += sorted({min(run, key=itemgetter(1)), max(run, key=itemgetter(1))})
    return [*kept[:-1], points[-1]] if kept[-1] != points[-1] else kept
