"""The largest value of a question that still fits: a sequence, a micro-batch, a depth.

In: the verdict on a value, asked one at a time, and a grain. Out: `Largest`. Called by
the verb `solve`. Each verdict is the same as a plan's, so there are two edges:

    fits           undecided            fails
    --------------|--------------------|-------------->  value
               largest              least

Values below one that fits are taken to fit, and values above one that fails to fail:
more of these takes more memory. Values may also end before one fails: a model takes no
longer sequence than it has positions for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_planner.records.interval import Verdict

Judge = Callable[[int], Verdict | None]
"""None: there is no such value, nor a larger one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Largest:
    """Both edges; values are multiples of the grain."""

    fits: int | None
    """The largest that fits; None: not even the grain does."""
    fails: int | None
    """The least that fails; None: the limit does not."""
    limit: int
    """The largest that there is, of those that may be tried."""
    num_asked: int
    """Values that were judged."""


def largest(judge: Judge, grain: int, limit: int) -> Largest:
    """Find both edges between a grain and a limit, which are tried as well."""
    known: dict[int, Verdict | None] = {}

    def verdict(count: int) -> Verdict | None:
        """Verdict on so many grains."""
        if count not in known:
            known[count] = judge(count * grain)
        return known[count]

    most = max(limit // grain, 1)
    fits = last(most, lambda count: verdict(count) is Verdict.FITS)
    open_ = (Verdict.FITS, Verdict.UNDECIDED)
    holds = last(most, lambda count: verdict(count) in open_)
    is_end = holds == most or verdict(holds + 1) is None
    return Largest(
        fits=fits * grain if fits else None,
        fails=None if is_end else (holds + 1) * grain,
        limit=(holds if is_end else most) * grain,
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


def largest_of(
    is_met: Callable[[int], bool], grain: int, top: int, *, is_falling: bool
) -> int | None:
    """The largest value up to one that fits, with which something else is met as well.

    If that is falling, it is met by all values below one that meets it: longer
    sequences are slower. Micro-batches have a best speed somewhere, so there each value
    is tried, from above.
    """
    counts = range(top // grain, 0, -1)
    if is_falling:
        found = last(counts[0], lambda count: is_met(count * grain))
    else:
        found = next((count for count in counts if is_met(count * grain)), 0)
    return found * grain or None
