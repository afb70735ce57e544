"""Which numbers in flight the stages of given cuts are tried with.

In: the numbers that each stage may have, and its best option with each. Out: vectors of
numbers that do not rise from stage to stage. Called by `tuple_search`.

If there are few vectors, all are tried, so the best is among them. Else these are, each
made to fit the order by lowering what exceeds the stage before:

    quickest    each stage has the number of its least step bound
    most        each stage has as many in flight as fit, and recomputes for it
    lightest    each stage has the most with which it recomputes least
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from plimsoll_planner.search.stage_options import StageOption

MOST_VECTORS = 14
"""As many as four stages have."""
OptionOf = Callable[[int, int], StageOption]
"""Best option of a stage with so many in flight."""
Vector = tuple[int, ...]


def every_vector(caps: Sequence[range]) -> list[Vector] | None:
    """All vectors, None if they are more than are tried."""
    found: list[Vector] = [()]
    for allowed in caps:
        found = [
            (*vector, k)
            for vector in found
            for k in allowed
            if not vector or k <= vector[-1]
        ]
        if len(found) > MOST_VECTORS:
            return None
    return found


def promising_vectors(caps: Sequence[range], option: OptionOf) -> Iterator[Vector]:
    """Yield some vectors of many; every stage fits with the fewest in flight."""
    stages = range(len(caps))
    fitting = [
        [one for k in reversed(caps[s]) if not (one := option(s, k)).exceeds]
        for s in stages
    ]
    yield ordered(min(mine).in_flight for mine in fitting)
    yield ordered(mine[0].in_flight for mine in fitting)
    yield ordered(min(mine, key=added_s).in_flight for mine in fitting)


def added_s(option: StageOption) -> float:
    """Seconds that recomputing adds; the first of equals is that of the most."""
    return option.added_s


def ordered(numbers: Iterator[int]) -> Vector:
    """Numbers lowered to those of the stages before."""
    return tuple(accumulate(numbers, min))
