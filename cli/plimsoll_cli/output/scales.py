"""Numbers as a picture shows them, and round numbers along an axis.

In: bytes, seconds, ranges. Out: texts in one unit a page, and ticks. Called by all
parts of the report, and by pictures of a terminal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_planner.text.plans import duration_text
from plimsoll_planner.units import GIB, MIB, number_text

UNITS = {"GiB": GIB, "MiB": MIB, "KiB": 2**10, "B": 1}
MOST_TICKS = 6
LEAST_PERCENT = 0.001
LEAST_SPAN, LEAST_SIZE = 1e-6, 1e-100
"""Numbers that differ by a smaller part are equal along an axis; smaller ones are 0."""
MANY_S = 1000
"""Seconds that are stated in a larger unit."""
SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


@dataclass(frozen=True, kw_only=True, slots=True)
class ByteScale:
    """One unit for all bytes that are compared, with as many decimals as tell them."""

    unit: str
    decimals: int

    @classmethod
    def up_to(cls, most_bytes: int) -> ByteScale:
        """The scale of bytes up to some."""
        unit = next((u for u, size in UNITS.items() if most_bytes >= size), "B")
        digits = len(str(most_bytes // UNITS[unit]))
        return cls(unit=unit, decimals=0 if unit == "B" else min(max(4 - digits, 0), 2))

    def up(self, num_bytes: int) -> str:
        """Needed bytes, rounded up."""
        return f"{self._number(num_bytes, math.ceil)} {self.unit}"

    def down(self, num_bytes: int) -> str:
        """Available bytes, rounded down and without zeros at the end."""
        number = self._number(num_bytes, math.floor)
        number = number.rstrip("0").rstrip(".") if "." in number else number
        return f"{number} {self.unit}"

    def near(self, num_bytes: int) -> str:
        """Measured bytes."""
        return f"{self._number(num_bytes, round)} {self.unit}"

    def near_or_smaller(self, num_bytes: int) -> str:
        """Measured bytes, in a smaller unit if they would read as nothing."""
        text = self.near(num_bytes)
        is_lost = num_bytes > 0 and not text.strip(f"0.{self.unit} ")
        return ByteScale.up_to(num_bytes).near(num_bytes) if is_lost else text

    def _number(self, num_bytes: int, rounding: Callable[[float], int]) -> str:
        power = 10**self.decimals
        whole = rounding(num_bytes * power / UNITS[self.unit])
        return f"{whole / power:,.{self.decimals}f}"

    def ticks(self, most_bytes: int) -> list[tuple[int, str]]:
        """Round places from 0 on: a power of two apart, in this unit."""
        size = UNITS[self.unit]
        step = 1.0
        while most_bytes / size / step >= MOST_TICKS:
            step *= 2
        while most_bytes / size / step < MOST_TICKS / 2 and step * size > 1:
            step /= 2
        count = int(most_bytes / size / step)
        return [
            (round(i * step * size), f"{i * step:g} {self.unit}" if i else "0")
            for i in range(count + 1)
        ]


def seconds_text(seconds: float) -> str:
    """Seconds in the unit that suits them; many in minutes, hours or days."""
    if seconds >= MANY_S:
        return duration_text(seconds)
    unit = next((u for u, size in SECONDS.items() if seconds >= size), "µs")
    return f"{number_text(seconds / SECONDS[unit], 3)} {unit}"


def percent_text(part: float, *, signed: bool = False) -> str:
    """A small part in percent, with the digits that tell it from none."""
    percent = 100 * part
    sign = "+" if signed else ""
    if abs(percent) >= 1 or percent == 0:
        return f"{percent:{sign}.2f}%"
    if abs(percent) < LEAST_PERCENT:
        return f"<{LEAST_PERCENT}%"
    return f"{percent:{sign}.2g}%"


def time_text(time: str) -> str:
    """A time of a status as people read it."""
    return time.replace("T", " ").replace("Z", " UTC")


def ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Round numbers, 1, 2 or 5 of a power of ten apart, that hold a range."""
    span, size = high - low, max(abs(low), abs(high))
    if span < max(LEAST_SPAN * size, LEAST_SIZE):
        span = size if size > LEAST_SIZE else 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(
        power * factor
        for factor in (1, 2, 5, 10, 20)
        if math.ceil(high / (power * factor)) - math.floor(low / (power * factor))
        < most
    )
    first, last = math.floor(low / step), math.ceil(high / step)
    return [i * step for i in range(first, max(last, first + 1) + 1)]
