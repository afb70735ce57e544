"""Walks through the tuples of all counts: which fit, which is fastest, which slimmest.

In: a problem. Out: the parts that `answer` puts together. Branch and bound over tuples:
each has bounds of its step, from a closed form to the exact programme, and the tuple
that promises most is looked at next (`Explorer.best`). The order is a function of the
problem alone, so the same problem has the same answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

from plimsoll_planner.memory.chain_bytes import Bound
from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.problem import Goal, Problem
from plimsoll_planner.search.space import Candidate, candidates
from plimsoll_planner.search.tuple_bounds import CutsOf
from plimsoll_planner.search.tuple_search import Found, TupleSearch
from plimsoll_planner.search.verdicts import (
    Decision,
    Floor,
    decide,
    quick_bound,
    samples_per_s,
)

FLOORED = (Goal.MINIMIZE_GPUS, Goal.MINIMIZE_MEMORY)
"""Goals that would be degenerate without a floor of speed."""
QUICK, PERIOD, PROGRAMME, WALKED = range(4)
"""How well the step of a tuple is known, from a closed form to a walked plan."""
MOST_TIGHTENINGS = 6
"""How often the step bound is tightened until the walked step is fast enough."""


class Explorer:
    """The tuples of one problem and what is known about them."""

    def __init__(self, problem: Problem, cuts_of: CutsOf | None = None) -> None:
        """Lay out the space; see `TupleBounds`."""
        self.problem = problem
        self.search = TupleSearch(problem, cuts_of)
        self.by_count = self._space()

    def _space(self) -> dict[int, list[Candidate]]:
        """Return the tuples of every count; those over the work limit are marked."""
        limits, layers = self.problem.limits, self.search.tables.num_layers
        left = limits.max_tuples
        space: dict[int, list[Candidate]] = {}
        for count in range(1, limits.max_gpus + 1):
            space[count] = []
            for candidate in candidates(self.problem, layers, count):
                if candidate.rule is None and left is not None:
                    left -= 1
                    if left < 0:
                        candidate = replace(candidate, rule=Rule.NOT_SEARCHED)  # noqa: PLW2901 - the same tuple, marked
                space[count].append(candidate)
        return space

    @property
    def num_tuples(self) -> int:
        """Of all counts."""
        return sum(map(len, self.by_count.values()))

    @property
    def num_cut_off(self) -> int:
        """Tuples over the work limit."""
        return sum(
            candidate.rule is Rule.NOT_SEARCHED
            for tuples in self.by_count.values()
            for candidate in tuples
        )

    @cached_property
    def fitting(self) -> list[Candidate]:
        """Return the tuples of which some plan fits, whatever its speed."""
        return [
            candidate
            for tuples in self.by_count.values()
            for candidate in tuples
            if candidate.rule is None and self.search.fits(candidate)
        ]

    def rate(self, found: Found) -> float:
        """Return the throughput of a plan, walked."""
        return samples_per_s(self.search, found.step_s)

    def quick_rate(self, candidate: Candidate) -> float:
        """Return more samples per second than any plan of the tuple has."""
        return samples_per_s(self.search, self.step_bound(candidate, QUICK))

    def step_bound(self, candidate: Candidate, level: int) -> float:
        """Return a lower bound of the tuple's step, dearer and better by the level."""
        if level == QUICK:
            return quick_bound(self.search, candidate, Bound.EXPECTED)
        if level == PERIOD:
            return candidate.num_micro_batches * self.search.least_period(candidate)
        if level == PROGRAMME:
            partition = self.search.quickest_cuts(candidate)
            return float("inf") if partition is None else partition.value
        found = self.search.fastest(candidate)
        return float("inf") if found is None else found.step_s

    def best(
        self, tuples: Iterable[Candidate], score: Callable[[Candidate, float], float]
    ) -> Found | None:
        """Return the walked plan of the highest score.

        Best first: the tuple of the highest bound is bounded better, up to its walked
        plan; when that is still the highest, no other tuple's plan scores higher. Among
        equals fewer GPUs come first, then cheaper ones.

        Args:
            tuples: where to look.
            score: of a tuple and the seconds of its step, which falls with them;
                minus infinity rules a tuple out.
        """
        heap = [
            (
                -score(c, self.step_bound(c, QUICK)),
                (c.num_gpus, self.price_per_hour(c), place),
                QUICK,
                c,
            )
            for place, c in enumerate(tuples)
        ]
        heapq.heapify(heap)
        while heap:
            negative, order, level, candidate = heapq.heappop(heap)
            if negative == float("inf"):
                return None
            if level == WALKED:
                return self.search.fastest(candidate)
            step_s = self.step_bound(candidate, level + 1)
            bounded = max(negative, -score(candidate, step_s))
            if level + 1 == WALKED:
                bounded = -score(candidate, step_s)
            heapq.heappush(heap, (bounded, order, level + 1, candidate))
        return None

    def price_per_hour(self, candidate: Candidate) -> float:
        """Return the price of all nodes, to compare; 0 where the offer states none."""
        return float(self.search.price_per_hour(candidate) or 0)

    def best_per_gpu(self) -> Found | None:
        """Return the plan of the most samples per second per GPU."""
        return self.best(
            self.fitting,
            lambda candidate, step_s: (
                samples_per_s(self.search, step_s) / candidate.num_gpus
            ),
        )

    def best_rate(
        self, tuples: Iterable[Candidate], least: float = 0.0
    ) -> Found | None:
        """Return the plan of the most samples per second, which is at least `least`."""

        def score(_: Candidate, step_s: float) -> float:
            rate = samples_per_s(self.search, step_s)
            return rate if rate >= least else float("-inf")

        return self.best(tuples, score)

    def floor(self, best: Found | None) -> Floor:
        """Return the rate that a plan must reach."""
        objective = self.problem.objective
        total = objective.min_samples_per_s or 0.0
        if objective.deadline_s and self.problem.num_steps:
            samples = self.problem.global_batch_size * self.problem.num_steps
            total = max(total, samples / objective.deadline_s)
        if total or best is None or objective.goal not in FLOORED:
            return Floor(total=total)
        share = objective.rate_floor / best.candidate.num_gpus
        lower_s = self.search.step_s(
            best.candidate, best.cuts, best.recomputed, Bound.LOWER
        )
        return Floor(
            per_gpu=share * self.rate(best),
            per_gpu_lower_s=share * samples_per_s(self.search, lower_s),
        )

    def decide(self, count: int, floor: Floor) -> list[Decision]:
        """Judge every tuple of one count."""
        return [decide(self.search, c, floor) for c in self.by_count[count]]

    def slimmest(self, found: Found, needed_per_s: float) -> Found:
        """Return the plan of the least peak of a tuple that is fast enough, walked.

        The programme is exact for the step bound; where the walk of its plan is slower
        than the bound, the bound is tightened, and at last the fastest plan stays.

        Args:
            found: the tuple's fastest plan, which is fast enough.
            needed_per_s: samples per second.
        """
        candidate = found.candidate
        capacity = self.search.allowance(candidate).tensor_capacity(Bound.UPPER)
        target_s = (
            self.problem.global_batch_size / needed_per_s if needed_per_s else 1e18
        )
        limit_s = target_s
        for _ in range(MOST_TIGHTENINGS):
            slim = self.search.slimmest(candidate, capacity, limit_s)
            if slim is None:
                break
            if slim.step_s <= target_s:
                return min(slim, found, key=lambda plan: max(plan.peaks))
            limit_s = min(slim.bound_s, limit_s) * target_s / slim.step_s
            if limit_s < found.bound_s:
                break
        return found

    def polished(self, found: Found, needed_per_s: float) -> Found:
        """Return the plan that is best in `Order` at the same peak and speed."""
        candidate = found.candidate
        capacity = self.search.allowance(candidate).tensor_capacity(Bound.UPPER)
        plan = self.search.slimmest(candidate, capacity, found.bound_s, in_order=True)
        if plan is None or self.rate(plan) < needed_per_s:
            return found
        return plan if plan.order <= found.order else found

    def device_peak(self, found: Found) -> int:
        """Return the largest upper bound on any device."""
        allowed = self.search.allowance(found.candidate)
        return allowed.device(Bound.UPPER, max(found.peaks))


def is_fitting(decisions: list[Decision]) -> bool:
    """Tell whether a count fits."""
    return any(decision.verdict is Verdict.FITS for decision in decisions)
