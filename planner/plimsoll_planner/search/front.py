"""Pareto fronts of plans, found by moocore; plans that differ by rounding are equal.

In: numbers of each plan, smaller is better in each. Out: whether it is on the front.
Called by `alternatives`, and by the report for the grid.

moocore compares doubles, and does so exactly: counts and bytes are whole numbers below
2^53, seconds and prices are doubles anyway. So that rounding beats nothing, the numbers
of a column are replaced by their places: those within `ROUNDING` of one another share
one. Two fronts are not of this kind, and are found where they are needed: options of
many groups at once, in whole numbers (`memory.pareto`), and the curve whose points hand
their bounds on to each other (`frontier`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import TypeVar

import numpy as np

ROUNDING = 1e-4
"""Part of a number that no table shows: plans that differ by less are one."""

Row = Sequence[float]
Plan = TypeVar("Plan")


def is_on_front(rows: Sequence[Row]) -> list[bool]:
    """Whether no other row is nowhere larger and somewhere smaller, beyond rounding.

    Of rows that are equal but for rounding the first one stands for all.

    Args:
        rows: finite numbers of each plan, as many in each.
    """
    if not rows:
        return []
    # Imported here: trainer and profiler, which search nothing, travel without it.
    import moocore  # type: ignore[import-untyped]  # noqa: PLC0415 - see above

    columns = [places(column) for column in zip(*rows, strict=True)]
    points = np.array(columns, dtype=np.float64).T
    return [bool(one) for one in moocore.is_nondominated(points)]


def unbeaten(plans: Sequence[Plan], numbers: Callable[[Plan], Row]) -> list[Plan]:
    """The plans of the front, in their order; see `is_on_front`."""
    return list(compress(plans, is_on_front([numbers(plan) for plan in plans])))


def places(numbers: Sequence[float]) -> list[int]:
    """Place of each number among all, from the smallest; 0 for that.

    One within `ROUNDING` of the smallest number of a place has that place.
    """
    found: dict[float, int] = {}
    first, place = 0.0, -1
    for number in sorted(set(numbers)):
        if place < 0 or number > first + abs(first) * ROUNDING:
            first, place = number, place + 1
        found[number] = place
    return [found[number] for number in numbers]
