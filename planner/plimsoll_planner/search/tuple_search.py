"""Plans of single tuples (offer, P, D, b): the fastest, and the one of least memory.

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

from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES, Bound, Ints
from plimsoll_planner.memory.option_arrays import OptionArrays
from plimsoll_planner.memory.stage_peaks import option_peaks, peaks_of_run
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.numbers import FITTING
from plimsoll_planner.search.partition import Partition
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_bounds import TupleBounds
from plimsoll_planner.search.tuple_context import CutsOf, least_of
from plimsoll_planner.search.walked_cuts import Walk
from plimsoll_planner.techniques.technique import StageChoice
from plimsoll_planner.timing import step_walk
from plimsoll_planner.timing.stage_runs import StageBound
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.walk_bounds import longest_step_s

MOST_WALKS = 64
"""Plans of one tuple and capacity that are walked."""
FINENESS = 4096
"""The least peak is found to within this part of itself; below that many bytes exactly.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One plan of a tuple."""

    candidate: Candidate
    cuts: tuple[int, ...]
    recomputed: tuple[tuple[int, ...], ...]
    """Layers that recompute, stage by stage."""
    choices: tuple[StageChoice, ...]
    """Choices of techniques, stage by stage."""
    bound_s: float
    """Lower bound of the step of all plans of the tuple within the same capacity."""
    step_s: float
    """Of the walked schedule, expected seconds."""
    peaks: tuple[int, ...]
    """Upper bounds of tensor bytes, stage by stage."""
    is_quickest: bool = True
    """No other choices or recomputed layers that fit make these cuts' step shorter."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class StageOption:
    """One choice for a stage, with its quickest option; the best one comes first."""

    exceeds: bool
    """It does not fit."""
    step_s: float
    """Step bound."""
    peak: int
    choice: int
    """Its place."""
    option: int
    """Its place."""
    added_s: float
    """Of a backward pass."""
    is_quickest: bool = True
    """No other one that fits adds less to a pass, nor ends a step sooner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeastMemory:
    """The plan of the least peak that is fast enough, and how little might do."""

    found: Found
    least_bytes: int
    """No plan of the tuple that is fast enough has a lower peak, tensor bytes; of those
    whose options were not pruned."""


class TupleSearch(TupleBounds):
    """Plans of single tuples, and their bounds."""

    def __init__(self, problem: Problem, cuts_of: CutsOf | None = None) -> None:
        """Prepare the tables; see `TupleBounds`."""
        super().__init__(problem, cuts_of)
        self.num_plans = 0
        """Plans whose peaks were computed, for the statistics."""
        self.fastest_of: dict[Candidate, Found] = {}
        """The fastest plan of each tuple that was asked for."""

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
        self, candidate: Candidate, capacity_bytes: int, enough_s: float = 0.0
    ) -> Found | None:
        """Plan of the shortest step whose peaks are within a capacity, None without.

        Upper bounds of tensors count. A step of at most `enough_s` ends the search.
        """
        values = self.step_bounds(candidate, FITTING, capacity_bytes)
        walked: dict[tuple[int, ...], Found] = {}

        def walk_s(cuts: tuple[int, ...]) -> float:
            walked[cuts] = self.found(candidate, cuts, capacity_bytes)
            return walked[cuts].step_s

        walk = Walk(
            step_s=walk_s,
            is_least=lambda cuts: walked[cuts].is_quickest,
            enough_s=enough_s,
            most_walks=MOST_WALKS,
        )
        best = self.placement(candidate.num_stages).shortest_walk(values, walk)
        if best is None:
            return None
        least_s = max(best.least_s, self.shared_bound(candidate, Bound.EXPECTED))
        return replace(walked[best.cuts], bound_s=least_s)

    def least_memory(self, fastest: Found, target_s: float) -> LeastMemory:
        """Plan of the least peak whose walked step is at most `target_s`.

        The tuple's fastest plan is fast enough.
        """
        found, least = fastest, self.least_peak_bytes(fastest.candidate, target_s)
        low, high, tried = least, max(fastest.peaks), least
        while low < high:
            plan = self.quickest_within(fastest.candidate, tried, target_s)
            if plan is not None and plan.step_s <= target_s:
                found, high = plan, max(plan.peaks)
            else:
                low = tried + 1
                is_proven = plan is None or plan.bound_s > target_s
                least = low if is_proven else least
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

    def peaks_within(self, candidate: Candidate, stage: int, limit_s: float) -> Ints:
        """[A, B]: least peaks of one stage whose step bound is within a limit."""
        bounds = self.bounds(candidate, Bound.EXPECTED)[stage]
        return least_of(
            self.choice_peaks(candidate, stage, choice, bound, limit_s)
            for choice, bound in zip(self.choices(candidate), bounds, strict=True)
        )

    def choice_peaks(
        self,
        candidate: Candidate,
        stage: int,
        choice: StageChoice,
        bound: StageBound,
        limit_s: float,
    ) -> Ints:
        """[A, B]: `peaks_within` of one choice, of which `bound` is the step bound."""
        options = self.options(candidate)
        is_fast = np.maximum(bound.passes, bound.cycles) <= limit_s
        possible = is_fast & (options.least_peak < LARGEST_BYTES)
        placement = self.placement(candidate.num_stages)
        runs = np.nonzero(placement.runs(possible, stage))
        stages = self.stage_bytes(candidate, Bound.UPPER, choice)
        flow = self.stage_flow(candidate, stage, choice)
        found = option_peaks(stages, options, flow, runs)
        steps = bound.of(runs).step_s(
            candidate.num_micro_batches, options.seconds[runs]
        )
        found = np.where(steps <= limit_s, found, LARGEST_BYTES)
        peaks = np.full(possible.shape, LARGEST_BYTES)
        peaks[runs] = np.minimum(found.min(axis=1), LARGEST_BYTES)
        return peaks

    def options(self, candidate: Candidate) -> OptionArrays:
        """Options that plans are made from."""
        return self.tables.options(candidate.offer, *FITTING, candidate.micro_batch)

    def run_peaks(
        self,
        candidate: Candidate,
        stage: int,
        run: tuple[int, int],
        choice: StageChoice,
    ) -> Ints:
        """[n]: upper peaks of the options of one run as one stage."""
        return peaks_of_run(
            self.stage_bytes(candidate, Bound.UPPER, choice),
            self.options(candidate),
            self.stage_flow(candidate, stage, choice),
            *run,
        )

    def found(
        self,
        candidate: Candidate,
        cuts: tuple[int, ...],
        capacity_bytes: int,
    ) -> Found:
        """Plan of given cuts whose every stage recomputes as little as fits, walked.

        Every stage fits with some choice: upper bounds of tensors within the capacity.
        """
        self.num_plans += 1
        runs, choices = self.tables.runs_of(cuts), self.choices(candidate)
        stages = [
            self.quickest_stage(candidate, stage, run, capacity_bytes)
            for stage, run in enumerate(runs)
        ]
        recomputed = self.options(candidate).recomputed
        found = Found(
            candidate=candidate,
            cuts=cuts,
            recomputed=tuple(
                recomputed(*run, one.option)
                for run, one in zip(runs, stages, strict=True)
            ),
            choices=tuple(choices[one.choice] for one in stages),
            bound_s=0.0,
            step_s=0.0,
            peaks=tuple(one.peak for one in stages),
            is_quickest=all(one.is_quickest for one in stages),
        )
        return replace(found, step_s=self.plan_step_s(found, Bound.EXPECTED))

    def quickest_stage(
        self,
        candidate: Candidate,
        stage: int,
        run: tuple[int, int],
        capacity_bytes: int,
    ) -> StageOption:
        """Choice and option of the least step bound that fit; ties to a lower peak."""
        options, count = self.options(candidate), candidate.num_micro_batches
        bounds = self.bounds(candidate, Bound.EXPECTED)[stage]
        found: list[StageOption] = []
        for place, choice in enumerate(self.choices(candidate)):
            peaks = self.run_peaks(candidate, stage, run, choice)
            option = quickest(options, *run, peaks, capacity_bytes)
            added_s, peak = options.seconds[(*run, option)], int(peaks[option])
            found.append(
                StageOption(
                    exceeds=peak > capacity_bytes,
                    step_s=float(bounds[place].of(run).step_s(count, added_s)),
                    peak=peak,
                    choice=place,
                    option=option,
                    added_s=float(added_s),
                )
            )
        best = min(found)

        def end_s(one: StageOption) -> float:
            choice = self.choices(candidate)[one.choice]
            return self.end_s(candidate, stage, run, choice, Bound.EXPECTED)

        is_quickest = all(
            best.added_s <= one.added_s and end_s(best) <= end_s(one)
            for one in found
            if one is not best and one.exceeds <= best.exceeds
        )
        return replace(best, is_quickest=is_quickest)

    def end_s(
        self,
        candidate: Candidate,
        stage: int,
        run: tuple[int, int],
        choice: StageChoice,
        bound: Bound,
    ) -> float:
        """Seconds of one run as a stage after its last backward pass."""
        stages = self.stage_bytes(candidate, bound, choice)
        exchange_s = self.placed(candidate).exchange_s(
            stage, int(stages.exchanged[run]), int(stages.num_exchanges[run])
        )
        runs = self.tables.runs(candidate.offer, bound, candidate.micro_batch)
        return float(choice.end_s(np.array(exchange_s), runs.optimizer_step[run]))

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
        candidate, b = found.candidate, found.candidate.micro_batch
        runs = self.tables.runs(candidate.offer, bound, b)
        added = self.tables.seconds(candidate.offer, bound, b).recompute
        times: list[StageTimes] = []
        for stage, run in enumerate(self.tables.runs_of(found.cuts)):
            choice, again = found.choices[stage], found.recomputed[stage]
            stages = self.stage_bytes(candidate, bound, choice)
            times.append(
                StageTimes(
                    forward_s=float(runs.forward[run]),
                    backward_s=float(runs.backward[run] + added[list(again)].sum()),
                    sent_bytes=int(stages.sent[run[1]]),
                    end_s=self.end_s(candidate, stage, run, choice, bound),
                )
            )
        return times


def quickest(
    options: OptionArrays, first: int, end: int, peaks: Ints, capacity_bytes: int
) -> int:
    """Option of least seconds that fits; ties to the lower peak."""
    seconds = np.where(peaks <= capacity_bytes, options.seconds[first, end], np.inf)
    return int(np.lexsort((options.num_recomputed[first, end], peaks, seconds))[0])
