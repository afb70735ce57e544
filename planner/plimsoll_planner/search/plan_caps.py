"""Numbers of micro-batches in flight for given cuts: branch and bound over all of them.

In: the numbers that each stage may have, its best option with each, and a walk. Out:
the plan of the shortest step, and a bound that no numbers go below. Called by
`tuple_search` for all cuts that are walked.

Numbers must not rise from stage to stage. Three vectors are walked first, each lowered
to what the stages before have:

    most        each stage has as many in flight as fit, and recomputes for it
    quickest    each stage has the number of its least step bound
    lightest    each stage has the most with which it recomputes least

Then vectors are extended stage by stage in the order of their bounds, the largest of
the bounds of their stages, until no bound is below the shortest step or the limit of
work is reached.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice

from plimsoll_planner.search.stage_options import StageOption

MOST_STAGES = 16
"""With more, only the first vector is walked."""
WORK = 1024
"""Vectors of given cuts that are walked: so many over the square of the number of
stages, and `MOST_WALKS` at least; a walk takes longer with more stages."""
MOST_WALKS = 2
EXTENSIONS_A_WALK = 1
"""Parts of vectors that are extended for each stage and walk, at most."""
Vector = tuple[int, ...]


@dataclass(kw_only=True)
class CapSearch:
    """One branch and bound."""

    caps: Sequence[range]
    """Of each stage, numbers in flight, rising."""
    option: Callable[[int, int], StageOption]
    """Best option of a stage with so many in flight; with the fewest it fits."""
    step_s: Callable[[Vector], float]
    """Seconds of the walked step; the options of all stages fit."""
    cycle_s: Callable[[Vector], float]
    """Lower bound of the step from the last of some stages and those before it."""
    below_s: float = float("inf")
    """Only shorter steps are looked for."""
    first: Vector = ()
    """Walked before all others; empty: none."""
    best: tuple[float, Vector] = (float("inf"), ())
    walked: set[Vector] = field(default_factory=set[Vector])
    least_walked_s: float = float("inf")
    """Least bound of vectors that were walked, where another choice may be shorter."""

    def run(self) -> float:
        """Find the best numbers; a lower bound over all numbers and choices.

        There are none if no step is below `below_s`.
        """
        fitting = [list(self.fitting(stage)) for stage in range(len(self.caps))]
        vectors = promising(fitting)
        if len(self.caps) > MOST_STAGES:
            vectors = islice(vectors, 1)
        for vector in chain([self.first] if self.first else [], vectors):
            self.walk(vector)
        left_s = float("inf")
        if len(self.caps) > MOST_STAGES:
            left_s = max(min(mine).step_s for mine in fitting)
        elif any(len(allowed) > 1 for allowed in self.caps):
            left_s = self.extend_all()
        return min(self.limit_s, left_s, self.least_walked_s)

    @property
    def limit_s(self) -> float:
        """Step that a better one is below."""
        return min(self.below_s, self.best[0])

    def bound_s(self, vector: Vector) -> float:
        """Lower bound of the step with these numbers."""
        return max(self.option(stage, k).step_s for stage, k in enumerate(vector))

    def is_slow(self, vector: Vector) -> bool:
        """Whether the best options with these numbers are not below the limit."""
        limit_s, size = self.limit_s, len(vector)
        return any(self.cycle_s(vector[: end + 1]) >= limit_s for end in range(size))

    def walk(self, vector: Vector) -> None:
        """Walk a vector, once, unless it is known not to be the best."""
        if vector in self.walked or self.bound_s(vector) >= self.limit_s:
            return
        self.walked.add(vector)
        if not self.is_slow(vector):
            self.best = min(self.best, (self.step_s(vector), vector))
        options = (self.option(stage, k) for stage, k in enumerate(vector))
        if not all(one.is_quickest for one in options):
            self.least_walked_s = min(self.least_walked_s, self.bound_s(vector))

    def fitting(self, stage: int) -> Iterator[StageOption]:
        """Yield options that fit, from the most in flight on, while they may help."""
        least_s = float("inf")
        for k in reversed(self.caps[stage]):
            one = self.option(stage, k)
            if not one.exceeds:
                least_s = min(least_s, one.step_s)
                yield one
            if one.least_s >= least_s:
                return

    def extend_all(self) -> float:
        """Extend and walk vectors; least bound of those that are left."""
        nodes: list[tuple[float, int, Vector]] = [(0.0, len(self.caps), ())]
        most_walks = max(WORK // len(self.caps) ** 2, MOST_WALKS)
        for _ in range(most_walks * EXTENSIONS_A_WALK * len(self.caps)):
            if not nodes or nodes[0][0] >= self.limit_s:
                return float("inf")
            bound_s, num_open, ordered = heapq.heappop(nodes)
            vector = tuple(-k for k in ordered)
            if num_open:
                for step_s, k in self.extensions(vector):
                    node = max(bound_s, step_s), num_open - 1, (*ordered, -k)
                    heapq.heappush(nodes, node)
                continue
            if vector not in self.walked and most_walks == 0:
                return bound_s
            most_walks -= vector not in self.walked
            self.walk(vector)
        return nodes[0][0] if nodes else float("inf")

    def extensions(self, vector: Vector) -> Iterator[tuple[float, int]]:
        """Yield bounds and numbers of the next stage, below the limit."""
        stage = len(vector)
        for k in reversed(self.caps[stage]):
            if vector and k > vector[-1]:
                continue
            one = self.option(stage, k)
            step_s = one.step_s
            if one.is_quickest and vector[-1:] == (k,):  # the two take turns
                step_s = max(step_s, self.cycle_s((*vector, k)))
            if not one.exceeds and step_s < self.limit_s:
                yield step_s, k
            if one.least_s >= self.limit_s:
                return


def promising(fitting: Sequence[Sequence[StageOption]]) -> Iterator[Vector]:
    """Yield the vectors that are walked first, from the options of each stage."""
    yield lowered(mine[0].in_flight for mine in fitting)
    yield lowered(min(mine).in_flight for mine in fitting)
    yield lowered(min(mine, key=added_s).in_flight for mine in fitting)


def added_s(option: StageOption) -> float:
    """Seconds that recomputing adds; the first of equals is that of the most."""
    return option.added_s


def lowered(numbers: Iterable[int]) -> Vector:
    """Numbers, none above those of the stages before."""
    return tuple(accumulate(numbers, min))
