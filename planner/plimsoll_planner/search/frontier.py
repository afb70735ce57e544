"""Memory against speed for one number of devices: the least peak at every speed.

In: a problem, a plan of it, how many speeds may be looked at. Out: a `Frontier`, None
if no plan of as many of its devices fits. Called by `plimsoll plan` and `report`.

    1  the ends: the fastest plan that fits, the least memory at any speed
    2  the speed of the plan itself
    3  the widest part of the curve that is not known, seconds (as logarithm) times
       bytes: the least peak at the geometric mean of both its ends; again and again

The least peak at a target, over all tuples: each tuple is asked for a plan below the
best peak so far, and only if it has one for its least peak (`TupleSearch`). The bound
is that of the plans which remain possible, as for the plan that is chosen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.frontier import NUM_SPEEDS, Frontier, FrontierPoint
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.build_plan import build_plan
from plimsoll_planner.search.choose import TIE, least_device_peak, open_gap
from plimsoll_planner.search.explore import LONGEST_STEP_S, QUICK, Explorer
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.numbers import FITTING
from plimsoll_planner.search.space import Candidate, members_of

ALIKE = 1e-3
"""Part of a number below which nobody sees a difference on a curve."""
CLOSE = 1e-2
"""Part of a step within which it need not be known at which speed a curve falls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """The least peak at some speeds."""

    found: Found
    peak_bytes: int
    """Of a device, upper bound."""
    least_bytes: int
    """No plan within the target has a lower one."""
    target_s: float
    """The plan is the best for every target from its own step up to this one."""

    @property
    def step_s(self) -> float:
        """Of the plan."""
        return self.found.step_s


class FrontierSearch:
    """Tuples of one number of devices, on one offer."""

    def __init__(self, problem: Problem, plan: HybridPlan) -> None:
        """Lay out the tuples that are like the plan in both."""
        self.explorer = Explorer(problem)
        self.search = self.explorer.search
        offer = self.explorer.problem.offers.index(plan.offers[0])
        families = [
            family
            for family in self.explorer.families[plan.num_gpus]
            if family.first.offer == offer
        ]
        self.is_cut_off = any(f.rule is Rule.NOT_SEARCHED for f in families)
        self.tuples = list(members_of(f for f in families if f.rule is None))

    @cached_property
    def fitting(self) -> list[Candidate]:
        """Tuples with a plan that fits, by their least peak at any speed."""
        fitting = [one for one in self.tuples if self.search.fits(one)]
        return sorted(fitting, key=self.least_peak)

    def least_peak(self, candidate: Candidate) -> int:
        """Least upper bound on any device at any speed."""
        return least_device_peak(self.explorer, candidate)

    def least_at(self, target_s: float, known: Found) -> Reached:
        """Least peak of all plans whose step is at most `target_s`; `known` is one."""
        target_s *= 1 + TIE
        best, peak = known, self.explorer.device_peak(known)
        least_bytes: list[int] = []
        for candidate in self.fitting:
            if self.least_peak(candidate) >= peak:
                break
            found, least = self.lighter(candidate, peak, target_s)
            least_bytes.append(least)
            if found is not None:
                best, peak = found, self.explorer.device_peak(found)
        quicker = self.search.quickest_within(best.candidate, max(best.peaks))
        if quicker is not None and quicker.step_s < best.step_s:
            best, peak = quicker, self.explorer.device_peak(quicker)
        least = min([peak, *least_bytes])
        if self.is_cut_off:
            least = 0
        elif self.search.tables.is_open:
            gap = open_gap(self.explorer, self.tuples, peak, lambda _: target_s)
            least = int(peak * (1 - gap))
        return Reached(
            found=best, peak_bytes=peak, least_bytes=least, target_s=target_s
        )

    def lighter(
        self, candidate: Candidate, peak: int, target_s: float
    ) -> tuple[Found | None, int]:
        """Plan of the least peak of one tuple, if that is below `peak` bytes.

        And how little might do; `peak` if no plan is below.
        """
        search = self.search
        if self.explorer.step_bound(candidate, QUICK) > target_s:
            return None, peak
        least_bytes = search.least_peak_bytes(candidate, target_s)
        least = self.explorer.device_bytes(candidate, least_bytes)
        if least >= peak:
            return None, peak
        smaller = replace(search.allowance(candidate), capacity_bytes=peak - 1)
        capacity = smaller.tensor_capacity(Bound.UPPER)
        bound = search.least_bound(candidate, FITTING, capacity)
        if bound is None or bound.value > target_s:
            return None, peak
        found, least_s = search.plan_within(candidate, capacity, target_s)
        if found is None:
            return None, peak if least_s > target_s else least
        memory = search.least_memory(found, target_s)
        least = self.explorer.device_bytes(candidate, memory.least_bytes)
        return memory.found, least


def frontier_of(
    problem: Problem,
    plan: HybridPlan,
    num_speeds: int = NUM_SPEEDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Frontier | None:
    """Curve of the least peak over the step, of as many devices as a plan has.

    Args:
        problem: the question.
        plan: its answer; one of the points, unless another one is better.
        num_speeds: most targets that are searched, at least `FEWEST_SPEEDS`.
        clock: seconds, for `search_s` alone.

    Raises:
        CannotPlanError: the profile or an offer lacks what the search needs.
    """
    started_s = clock()
    frontier = FrontierSearch(problem, plan)
    reached = curve(frontier, plan, num_speeds)
    if not reached:
        return None
    points = [
        FrontierPoint.of(build_plan(frontier.search, one.found), one.least_bytes)
        for one in reached
    ]
    offer = plan.offers[0]
    return Frontier(
        num_gpus=plan.num_gpus,
        capacity_bytes=problem.limits.usable_bytes(offer.device_memory_bytes),
        points=with_plan(points, plan),
        search_s=clock() - started_s,
    )


def curve(frontier: FrontierSearch, plan: HybridPlan, num_speeds: int) -> list[Reached]:
    """Search some targets; those that no other one beats, the fastest first."""
    fastest = frontier.explorer.best_rate(frontier.fitting)
    if fastest is None:
        return []
    targets = [fastest.step_s, LONGEST_STEP_S]
    if plan.step_time is not None and plan.step_time.expected_s > fastest.step_s:
        targets.append(plan.step_time.expected_s)
    reached: list[Reached] = []
    for _ in range(num_speeds):
        targets = targets or list(widest(reached))
        if not targets:
            break
        target_s = targets.pop(0)
        known = [one for one in reached if one.step_s <= target_s]
        best = known[-1].found if known else fastest
        reached = unbeaten([*reached, frontier.least_at(target_s, best)])
    # What holds for slower plans holds for faster ones as well.
    least = list(accumulate((one.least_bytes for one in reversed(reached)), max))
    return [
        replace(one, least_bytes=bound)
        for one, bound in zip(reached, reversed(least), strict=True)
    ]


def unbeaten(reached: Iterable[Reached]) -> list[Reached]:
    """Those that are lighter than all faster ones; these stand for the others."""
    kept: list[Reached] = []
    for one in sorted(reached, key=lambda one: (one.step_s, one.peak_bytes)):
        if not kept or one.peak_bytes < kept[-1].peak_bytes:
            kept.append(one)
            continue
        last = kept[-1]
        kept[-1] = replace(
            last,
            target_s=max(last.target_s, one.target_s),
            least_bytes=max(last.least_bytes, min(one.least_bytes, last.peak_bytes)),
        )
    return kept


def widest(reached: list[Reached]) -> Iterator[float]:
    """Yield the middle of the widest part that is not known; none if all is seen."""
    parts = [
        (math.log(slower.step_s / faster.target_s) * saved, faster, slower)
        for faster, slower in pairwise(reached)
        if (saved := faster.peak_bytes - slower.peak_bytes) > ALIKE * faster.peak_bytes
        and slower.step_s > faster.target_s * (1 + CLOSE)
    ]
    if parts:
        _, faster, slower = max(parts, key=lambda part: part[0])
        yield math.sqrt(faster.target_s * slower.step_s)


def with_plan(
    points: list[FrontierPoint], plan: HybridPlan
) -> tuple[FrontierPoint, ...]:
    """Points with the plan in the place of one like it, unless one beats it."""
    own = FrontierPoint.of(plan, 0)
    step_s, peak = own.step_time.expected_s, own.peak_bytes
    slower = [one for one in points if one.step_time.expected_s >= step_s]
    least = max((one.least_peak_bytes for one in slower), default=0)
    own = replace(own, least_peak_bytes=min(least, peak))
    others = [one for one in points if not is_alike(one, own)]
    is_beaten = any(
        one.step_time.expected_s <= step_s and one.peak_bytes <= peak for one in others
    )
    # A peak below the bound is not of the formula: the ranks were replayed.
    if is_beaten or peak < least:
        return tuple(points)
    kept = [
        one
        for one in others
        if one.step_time.expected_s < step_s or one.peak_bytes < peak
    ]
    return tuple(sorted([*kept, own], key=lambda one: -one.peak_bytes))


def is_alike(one: FrontierPoint, other: FrontierPoint) -> bool:
    """Whether nobody sees a difference."""
    return math.isclose(
        one.step_time.expected_s, other.step_time.expected_s, rel_tol=ALIKE
    ) and math.isclose(one.peak_bytes, other.peak_bytes, rel_tol=ALIKE)
