"""Plans of single tuples (offer, P, D, T, b): the fastest, and the one of least memory.

In: a candidate. Out: plans (`Found`). Called by `verdicts` and `explore`.

    fastest        of the shortest walked step among the plans whose upper bytes fit
    least_memory   of the least peak V among those whose walked step is short enough

Both ask one question, the shortest step within a capacity (`quickest_within`): with
given cuts it is reached where every stage recomputes as little as fits, and the cuts
are found by branch and bound (`walked_cuts`). The least peak is found by bisection: a
programme over peaks says below which V even the bounds of steps are too long, and the
smallest V is looked for whose shortest step is short enough. So a stage never
recomputes more than the fullest one needs to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Floats
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.grouped_plans import GroupedPlans
from plimsoll_planner.search.numbers import FAILING, FITTING, Numbers
from plimsoll_planner.search.partition import Partition
from plimsoll_planner.search.plans_within import PlansWithin
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_context import CutsOf
from plimsoll_planner.search.walked_cuts import Walk
from plimsoll_planner.timing import step_walk
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.walk_bounds import longest_step_s

MOST_WALKS = 64
"""Plans of one tuple and capacity that are walked."""
MOST_KEPT_BYTES = 2**28
"""Step bounds that are kept."""
FINENESS = 4096
"""The least peak is found to within this part of itself; below that many bytes exactly.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeastMemory:
    """The plan of the least peak that is fast enough, and how little might do."""

    found: Found
    least_bytes: int
    """No plan of the tuple that is fast enough has a lower peak, tensor bytes; of those
    whose options were not pruned."""


class TupleSearch(GroupedPlans):
    """Plans of single tuples, and their bounds."""

    def __init__(self, problem: Problem, cuts_of: CutsOf | None = None) -> None:
        """Prepare the tables; see `TupleBounds`."""
        super().__init__(problem, cuts_of)
        self._step_bounds: dict[tuple[object, ...], list[Floats]] = {}
        self.num_plans = 0
        """Plans whose peaks were computed, for the statistics."""
        self.fastest_of: dict[Candidate, Found] = {}
        """The fastest plan of each tuple that was asked for."""

    def step_bounds(
        self, candidate: Candidate, bounds: Numbers, capacity_bytes: int
    ) -> list[Floats]:
        """See the base; what was asked for lately is kept."""
        key = (candidate, bounds, capacity_bytes)
        if key not in self._step_bounds:
            kept = sum(each.nbytes for v in self._step_bounds.values() for each in v)
            if kept > MOST_KEPT_BYTES:
                self._step_bounds.clear()
            found = super().step_bounds(candidate, bounds, capacity_bytes)
            self._step_bounds[key] = found
        return self._step_bounds[key]

    def quickest_cuts(self, candidate: Candidate) -> Partition | None:
        """Least step bound of the plans whose upper bytes fit."""
        one = self.alike(candidate)

        def make() -> Partition | None:
            capacity = self.capacity(one, Bound.UPPER)
            return self.least_bound(one, FITTING, capacity) if self.fits(one) else None

        return self.once(("quickest cuts", one), make)

    def fastest(self, candidate: Candidate) -> Found | None:
        """Plan of the shortest walked step among those that fit, None without one."""
        if self.quickest_cuts(candidate) is None:
            return None
        if candidate not in self.fastest_of:
            key = self.alike(candidate)
            if key not in self.fastest_of:
                capacity = self.capacity(key, Bound.UPPER)
                found = self.quickest_within(key, capacity)
                if found is None:
                    return None
                self.fastest_of[key] = found
            self.fastest_of[candidate] = replace(
                self.fastest_of[key], candidate=candidate
            )
        return self.fastest_of[candidate]

    def quickest_within(
        self, candidate: Candidate, capacity_bytes: int
    ) -> Found | None:
        """Plan of the shortest step whose peaks are within a capacity, None without.

        Upper bounds of tensors count.
        """
        plan, least_s = self.plan_within(candidate, capacity_bytes)
        return plan and replace(plan, bound_s=least_s)

    def plan_within(
        self,
        candidate: Candidate,
        capacity_bytes: int,
        target_s: float | None = None,
        numbers: Numbers = FITTING,
    ) -> tuple[Found | None, float]:
        """Plan of the shortest step, or any whose step is at most a target.

        Returns:
            The plan, None where none was found; and a lower bound of all steps, above
            the target where it is proven that there is none.
        """
        values = self.step_bounds(candidate, numbers, capacity_bytes)
        plans = PlansWithin(self, candidate, capacity_bytes, numbers)
        enough_s, limit_s = 0.0, np.inf
        if target_s is not None:
            enough_s, limit_s = target_s, float(np.nextafter(target_s, np.inf))
        walked: dict[tuple[int, ...], Found] = {}
        least: dict[tuple[int, ...], float] = {}

        def walk_s(cuts: tuple[int, ...]) -> float:
            below_s = min((one.step_s for one in walked.values()), default=limit_s)
            found, least[cuts] = plans.found(cuts, below_s)
            if found is None:
                return np.inf
            walked[cuts] = found
            return found.step_s

        walk = Walk(
            step_s=walk_s,
            least_s=least.__getitem__,
            enough_s=enough_s,
            below_s=limit_s,
            most_walks=MOST_WALKS,
        )
        best = self.placement(candidate.num_stages).shortest_walk(values, walk)
        if best is None:
            return None, np.inf
        plan, least_s = walked.get(best.cuts), best.least_s
        step_s = limit_s if plan is None else plan.step_s
        if step_s > max(enough_s, least_s):
            by_groups, group_s = self.of_groups(plans, step_s)
            plan, least_s = by_groups or plan, max(least_s, group_s)
        self.num_plans += plans.num_walked
        least_s = max(least_s, self.shared_bound(candidate, numbers.seconds))
        return plan, least_s if plan is None else min(least_s, plan.step_s)

    def least_walk_s(self, candidate: Candidate, target_s: float) -> float:
        """Lower bound of all walked steps, for all bytes and seconds in their ranges.

        It is above the target where that is proven of all steps.
        """
        if self.tables.is_grouped:
            return 0.0
        capacity = self.capacity(candidate, Bound.LOWER)
        return self.plan_within(candidate, capacity, target_s, FAILING)[1]

    def least_memory(self, fastest: Found, target_s: float) -> LeastMemory:
        """Plan of the least peak whose walked step is at most `target_s`.

        The tuple's fastest plan is fast enough.
        """
        found, least = fastest, self.least_peak_bytes(fastest.candidate, target_s)
        low, high, tried = least, max(fastest.peaks), least
        while low < high:
            plan, least_s = self.plan_within(fastest.candidate, tried, target_s)
            if plan is not None:
                found, high = replace(plan, bound_s=least_s), max(plan.peaks)
            else:
                low = tried + 1
                least = low if least_s > target_s else least
            if high - low <= high // FINENESS:
                break
            tried = (low + high) // 2
        return LeastMemory(found=found, least_bytes=min(least, max(found.peaks)))

    def least_peak_bytes(self, candidate: Candidate, limit_s: float) -> int:
        """Least largest peak of all plans whose step bound is within a limit, bytes."""
        peaks = [
            self.peaks_within(candidate, stage, limit_s).astype(np.float64)
            for stage in range(candidate.num_stages)
        ]
        best = self.placement(candidate.num_stages).least_largest(peaks)
        return LARGEST_BYTES if best is None else int(best.value)

    def least_peak_plan(self, candidate: Candidate) -> Found | None:
        """Plan of the least peak at any speed, whether it fits or not."""
        least = self.least_peak(candidate, Bound.UPPER)
        if least >= LARGEST_BYTES:
            return None
        return self.quickest_within(candidate, least)

    def plan_step_s(self, found: Found, bound: Bound) -> float:
        """Seconds of a plan's walked step, for one bound of all seconds and bytes."""
        candidate = found.candidate
        times = self.stage_times(found, bound)
        placed, count = self.placed(candidate), candidate.num_micro_batches
        return step_walk.walk(candidate.schedule, times, count, placed)

    def longest_step_s(self, found: Found) -> float:
        """Seconds that a plan's step never exceeds, for all seconds in their range."""
        upper, expected = (
            self.stage_times(found, bound) for bound in (Bound.UPPER, Bound.EXPECTED)
        )
        if upper == expected:
            return found.step_s
        candidate = found.candidate
        placed, count = self.placed(candidate), candidate.num_micro_batches
        return longest_step_s(candidate.schedule, upper, count, placed)

    def stage_times(self, found: Found, bound: Bound) -> list[StageTimes]:
        """Seconds and bytes of every stage of a plan."""
        candidate = found.candidate

        def added_s(stage: int) -> tuple[float, float]:
            added = self.added(candidate, found.choices[stage], bound)
            layers = list(found.recomputed[stage])
            passes, pace = (added.forward, added.backward), self.pace(stage)
            forward_s, backward_s = (float(each[layers].sum()) for each in passes)
            return forward_s * pace, backward_s * pace

        return [
            self.run_times(
                *(candidate, stage, run, found.choices[stage]), added_s(stage), bound
            )
            for stage, run in enumerate(self.tables.runs_of(found.cuts))
        ]
