"""The largest value of a question that still fits: a sequence, a micro-batch, a depth.

In: the verdict on a value, asked one at a time, and a grain. Out: `Largest`. Called by
the verb `solve`. Each verdict is the same as a plan's, so there are two edges:

    fits           undecided            fails
    --------------|--------------------|-------------->  value
               largest              least

Values below one that fits are taken to fit, and values above one that fails to fail:
more of these takes more memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_planner.records.interval import Verdict

Judge = Callable[[int], Verdict]


@dataclass(frozen=True, kw_only=True, slots=True)
class Largest:
    """Both edges; values are multiples of the grain."""

    fits: int | None
    """The largest that fits; None: not even the grain does."""
    fails: int | None
    """The least that fails; None: the limit does not."""
    num_asked: int
    """Values that were judged."""


def largest(judge: Judge, grain: int, limit: int) -> Largest:
    """Find both edges between a grain and a limit, which are tried as well."""
    known: dict[int, Verdict] = {}

    def verdict(count: int) -> Verdict:
        """Verdict on so many grains."""
        if count not in known:
            known[count] = judge(count * grain)
        return known[count]

    most = max(limit // grain, 1)
    fits = last(most, lambda count: verdict(count) is Verdict.FITS)
    holds = last(most, lambda count: verdict(count) is not Verdict.FAILS)
    return Largest(
        fits=fits * grain if fits else None,
        fails=(holds + 1) * grain if holds < most else None,
        num_asked=len(known),
    )


def last(most: int, holds: Callable[[int], bool]) -> int:
    """The last number up to one for which something holds; 0: for none.

    It is looked for in steps that double, then by halves: what is large takes long.
    """
    low, high = 0, 1
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
