"""Numbers of micro-batches in flight for given cuts: branch and bound over all of them.

In: the numbers that each stage may have, its best option with each, and a walk. Out:
the plan of the shortest step, and a bound that no numbers go below. Called by
`tuple_search` for all cuts that are walked.

A stage has as many as the one before, or one fewer (`can_follow`). Three vectors are
walked first, each lowered to that:

    most        each stage has as many in flight as fit, and recomputes for it
    quickest    each stage has the number of its least step bound
    lightest    each stage has the most with which it recomputes least

Then vectors are extended stage by stage in the order of their bounds, until no bound is
below the shortest step or the limit of work is reached. Before, numbers are left out
that a stage can not have in a shorter step, whatever the others have (`cut_bounds`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from plimsoll_planner.records.engine import can_follow
from plimsoll_planner.search.stage_options import StageOption

MOST_STAGES = 16
"""With more, only the first vector is walked."""
WORK = 1024
"""Vectors of given cuts that are walked: so many over the square of the number of
stages, and `MOST_WALKS` at least; a walk takes longer with more stages."""
MOST_WALKS = 2
EXTENSIONS_A_WALK = 1
"""Parts of vectors that are extended for each stage and walk, at most."""
INFINITE = float("inf")
Vector = tuple[int, ...]
Row = dict[int, float]
"""Step bounds of a stage by number in flight, from the most on."""


class NumberBounds:
    """Bounds of the step beyond those of single stages; here none are known."""

    def narrowed(self, rows: Sequence[Row]) -> list[Row]:
        """Better bounds, if no stage has other numbers; some may be left out."""
        return list(rows)

    def cycle_s(self, vector: Vector) -> float:
        """Lower bound of the step from the last of some stages and those before it.

        Their numbers, and those behind, are among the rows that were narrowed last.
        """
        del vector
        return 0.0


@dataclass(kw_only=True)
class CapSearch:
    """One branch and bound."""

    caps: Sequence[range]
    """Of each stage, numbers in flight, rising."""
    option: Callable[[int, int], StageOption]
    """Best option of a stage with so many in flight; with the fewest it fits."""
    step_s: Callable[[Vector], float]
    """Seconds of the walked step; the options of all stages fit."""
    bounds: NumberBounds
    below_s: float = INFINITE
    """Only shorter steps are looked for."""
    first: Vector = ()
    """Walked before all others; empty: none."""
    best: tuple[float, Vector] = (INFINITE, ())
    walked: set[Vector] = field(default_factory=set[Vector])
    least_walked_s: float = INFINITE
    """Least bound of vectors that were walked, where another choice may be shorter."""
    rows: list[Row] = field(default_factory=list[Row])
    """Numbers of which the bounds are below the limit; empty if a stage has none."""

    def run(self) -> float:
        """Find the best numbers; a lower bound over all numbers and choices.

        There are none if no step is below `below_s`.
        """
        if len(self.caps) > MOST_STAGES:
            return self.walk_one()
        vectors = self.promising()
        if self.limit_s == INFINITE:
            vector = next(vectors)
            steps = (self.option(s, k).step_s for s, k in enumerate(vector))
            self.walk(vector, max(steps))
        self.narrow(self.of_options())
        while self.rows and (vector := next(vectors, ())):
            bound_s = self.bound_s(vector)
            if bound_s < self.limit_s:
                self.walk(vector, bound_s)
                self.narrow(self.rows)
        left_s = self.extend_all() if self.rows else INFINITE
        return min(self.limit_s, left_s, self.least_walked_s)

    def walk_one(self) -> float:
        """Walk the first vector; the largest of the least bounds of the stages."""
        fitting = [list(self.fitting(stage)) for stage in range(len(self.caps))]
        least_s = max(min(mine).step_s for mine in fitting)
        for vector in filter(None, (self.first, most_of(fitting))):
            rows = [{k: self.option(s, k).step_s} for s, k in enumerate(vector)]
            steps = (max(row.values()) for row in self.bounds.narrowed(rows))
            if max(steps) < self.limit_s:
                self.walk(vector, least_s)
        return min(self.limit_s, least_s)

    def promising(self) -> Iterator[Vector]:
        """Yield the vectors that are walked first."""
        if self.first:
            yield self.first
        fitting = [list(self.fitting(stage)) for stage in range(len(self.caps))]
        yield most_of(fitting)
        yield lowered(min(mine).in_flight for mine in fitting)
        yield lowered(min(mine, key=passes_s).in_flight for mine in fitting)

    @property
    def limit_s(self) -> float:
        """Step that a better one is below."""
        return min(self.below_s, self.best[0])

    def of_options(self) -> list[Row]:
        """Step bounds of single stages with the numbers that may help."""
        found: list[Row] = []
        for stage, allowed in enumerate(self.caps):
            mine: Row = {}
            for k in reversed(allowed):
                one = self.option(stage, k)
                if not one.exceeds and one.step_s < self.limit_s:
                    mine[k] = one.step_s
                if one.least_s >= self.limit_s:
                    break
            if not mine:
                return []
            found.append(mine)
        return found

    def narrow(self, rows: list[Row]) -> None:
        """Keep the numbers whose bounds are below the limit, and better their bounds.

        The fewer are left on a stage, the more is known of the others.
        """
        while rows:
            rows = [{k: s for k, s in row.items() if s < self.limit_s} for row in rows]
            if rows == self.rows:
                return
            self.rows = rows = self.bounds.narrowed(rows) if all(rows) else []

    def bound_s(self, vector: Vector) -> float:
        """Lower bound of the step with these numbers."""
        if vector in self.walked:
            return INFINITE
        rows = zip(self.rows, vector, strict=True)
        bound_s = max(row.get(k, INFINITE) for row, k in rows)
        for end in range(1, len(vector) + 1):
            if bound_s < self.limit_s:
                bound_s = max(bound_s, self.bounds.cycle_s(vector[:end]))
        return bound_s

    def walk(self, vector: Vector, bound_s: float) -> None:
        """Walk a vector, whose step has a lower bound."""
        self.walked.add(vector)
        step_s = self.step_s(vector)
        if step_s < self.below_s:
            self.best = min(self.best, (step_s, vector))
        if not all(self.option(s, k).is_quickest for s, k in enumerate(vector)):
            self.least_walked_s = min(self.least_walked_s, bound_s)

    def fitting(self, stage: int) -> Iterator[StageOption]:
        """Yield options that fit, from the most in flight on, while they may help."""
        least_s = INFINITE
        for k in reversed(self.caps[stage]):
            one = self.option(stage, k)
            if not one.exceeds:
                least_s = min(least_s, one.step_s)
                yield one
            if one.least_s >= least_s:
                return

    def extend_all(self) -> float:
        """Extend and walk vectors; least bound of those that are left."""
        size = len(self.rows)
        nodes: list[tuple[float, int, Vector]] = [(0.0, size, ())]
        most_walks = max(WORK // size**2, MOST_WALKS)
        for _ in range(most_walks * EXTENSIONS_A_WALK * size):
            if not nodes or nodes[0][0] >= self.limit_s:
                return INFINITE
            bound_s, num_open, ordered = heapq.heappop(nodes)
            vector = tuple(-k for k in ordered)
            if num_open:
                for step_s, k in self.extensions(vector, bound_s):
                    heapq.heappush(nodes, (step_s, num_open - 1, (*ordered, -k)))
            elif vector not in self.walked:
                if most_walks == 0:
                    return bound_s
                most_walks -= 1
                self.walk(vector, bound_s)
        return nodes[0][0] if nodes else INFINITE

    def extensions(self, vector: Vector, bound_s: float) -> Iterator[tuple[float, int]]:
        """Yield bounds and numbers of the next stage, below the limit."""
        for k, own_s in self.rows[len(vector)].items():
            if vector and not can_follow(k, vector[-1]):
                continue
            step_s = max(bound_s, own_s)
            if step_s < self.limit_s:
                step_s = max(step_s, self.bounds.cycle_s((*vector, k)))
            if step_s < self.limit_s:
                yield step_s, k


def most_of(fitting: Sequence[Sequence[StageOption]]) -> Vector:
    """As many in flight as fit on each stage."""
    return lowered(mine[0].in_flight for mine in fitting)


def passes_s(option: StageOption) -> float:
    """Seconds of both passes; the first of equals is that of the most."""
    return option.passes_s


def lowered(numbers: Iterable[int]) -> Vector:
    """Largest numbers, none above these, that can follow one another."""
    from_last = accumulate(reversed(list(numbers)), lambda k, mine: min(mine, k + 1))
    return tuple(accumulate(reversed(list(from_last)), min))
