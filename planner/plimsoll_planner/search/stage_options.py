"""Options of single stages: what a stage does to fit, and how long that takes.

In: a tuple, a stage, a run of layers, a capacity, micro-batches in flight. Out: the
choice and the recomputed layers of the least step bound. The base of `TupleSearch`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES, Bound, Ints
from plimsoll_planner.memory.option_arrays import OptionArrays
from plimsoll_planner.memory.stage_peaks import option_peaks, peaks_of_run
from plimsoll_planner.search.choice_bounds import ChoiceBounds
from plimsoll_planner.search.numbers import FITTING, Numbers
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_bounds import TupleBounds
from plimsoll_planner.search.tuple_context import least_of
from plimsoll_planner.techniques.technique import StageChoice
from plimsoll_planner.timing.stage_runs import end_seconds, pass_seconds
from plimsoll_planner.timing.stage_times import StageTimes


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class StageOption:
    """One choice for a stage, with its quickest option; the best one comes first."""

    exceeds: bool
    """It does not fit."""
    step_s: float
    """Step bound."""
    end_s: float
    """After the last backward pass."""
    peak: int
    choice: int
    """Its place."""
    option: int
    """Its place."""
    added_s: float
    """Of a backward pass, for recomputing."""
    forward_s: float
    """Forward pass."""
    backward_s: float
    """Backward pass with all that is added."""
    in_flight: int
    least_s: float
    """Step bound of every option of the stage with as many in flight or fewer."""
    is_quickest: bool = True
    """No other one that fits with as many in flight has a shorter pass, nor ends a step
    sooner."""

    @property
    def seconds(self) -> tuple[float, float, float]:
        """Of the passes and the end of a step."""
        return self.backward_s, self.forward_s, self.end_s

    @property
    def passes_s(self) -> float:
        """Of both passes."""
        return self.forward_s + self.backward_s

    def is_no_longer(self, other: StageOption) -> bool:
        """Whether it takes no longer than another one, whatever surrounds the stage."""
        pairs = zip(self.seconds, other.seconds, strict=True)
        return all(mine <= theirs for mine, theirs in pairs)


class StageOptions(TupleBounds):
    """Options of single stages."""

    def options(
        self, candidate: Candidate, choice: StageChoice, numbers: Numbers = FITTING
    ) -> OptionArrays:
        """Options that plans are made from."""
        costs, b = self.costs(candidate), candidate.micro_batch
        return costs.options(candidate.offer, *numbers, b, choice.at_work)

    def run_peaks(
        self,
        candidate: Candidate,
        stage: int,
        run: tuple[int, int],
        choice: StageChoice,
        numbers: Numbers = FITTING,
    ) -> Ints:
        """[n]: peaks of the options of one run as one stage."""
        return peaks_of_run(
            self.stage_bytes(candidate, numbers.bytes, choice),
            self.options(candidate, choice, numbers),
            self.stage_flow(candidate, stage, choice),
            *run,
        )

    def useful_options(
        self,
        candidate: Candidate,
        stage: int,
        run: tuple[int, int],
        capacity_bytes: int,
        in_flight: int,
        numbers: Numbers,
    ) -> tuple[StageOption, ...]:
        """Options that fit, the least step bound first; ties to a lower peak.

        One of each choice, but where another one takes no longer in any pass and ends a
        step no later. If none fits, one that does not.
        """
        count = candidate.num_micro_batches
        bounds = self.bounds(candidate, numbers.seconds)[stage]
        found: list[StageOption] = []
        least_s = float("inf")
        for place, choice in enumerate(self.choices(candidate)):
            options = self.options(candidate, choice, numbers)
            asked = stage, run, choice.capped(in_flight), numbers
            peaks = self.run_peaks(candidate, *asked)
            option = quickest(options, *run, peaks, capacity_bytes)
            added_s = options.seconds[options.of(*run)][option : option + 1]
            bound = bounds[place].of_run(run, in_flight)
            least_s = min(least_s, float(bound.with_fewer[0]))
            step_s = bound.step_s(count, added_s)
            peak = int(peaks[option])
            found.append(
                StageOption(
                    exceeds=peak > capacity_bytes,
                    step_s=float(step_s[0]),
                    end_s=float(bounds[place].runs.end[run]),
                    peak=peak,
                    choice=place,
                    option=option,
                    added_s=float(added_s[0]),
                    forward_s=float(bounds[place].runs.forward[run]),
                    backward_s=float(bounds[place].runs.backward[run] + added_s[0]),
                    in_flight=in_flight,
                    least_s=least_s,
                )
            )
        useful: list[StageOption] = []
        for one in sorted(found, key=lambda one: (one.exceeds, *one.seconds)):
            if one.exceeds and useful:
                break
            if not any(other.is_no_longer(one) for other in useful):
                useful.append(one)
        alone = len(useful) == 1
        return tuple(
            replace(one, is_quickest=alone, least_s=least_s) for one in sorted(useful)
        )

    def end_s(
        self,
        candidate: Candidate,
        stage: int,
        run: tuple[int, int],
        choice: StageChoice,
        bound: Bound,
    ) -> float:
        """Seconds of one run as a stage after its last backward pass."""
        exchange = self.exchange(candidate, bound, choice).of(run)
        costs, b = self.costs(candidate), candidate.micro_batch
        runs = costs.runs(candidate.offer, bound, b)
        spent_s = runs.optimizer_step[run], runs.host_step[run], runs.group_end[run]
        end = end_seconds(self.placed(candidate), stage, exchange, *spent_s)
        return float(choice.end_s(end, bound))

    def run_times(
        self,
        candidate: Candidate,
        stage: int,
        run: tuple[int, int],
        choice: StageChoice,
        added_s: float,
        bound: Bound,
    ) -> StageTimes:
        """Seconds and bytes of one run as a stage, if recomputing adds some seconds."""
        costs, b = self.costs(candidate), candidate.micro_batch
        runs = costs.runs(candidate.offer, bound, b)
        stages = self.stage_bytes(candidate, bound, choice)
        exchange = self.exchange(candidate, bound, choice).of(run)
        forward, backward = pass_seconds(self.placed(candidate), stage, exchange)
        return StageTimes(
            forward_s=float(runs.forward[run] + forward),
            backward_s=float(runs.backward[run] + backward + added_s),
            sent_bytes=int(stages.sent[run[1]]),
            end_s=self.end_s(candidate, stage, run, choice, bound),
            in_flight_cap=self.stage_flow(candidate, stage, choice).in_flight,
        )

    def peaks_within(self, candidate: Candidate, stage: int, limit_s: float) -> Ints:
        """[A, B]: least peaks of one stage whose step bound is within a limit.

        With several numbers in flight a lower bound: the peak is that of the fewest,
        and recomputing may take as long as with the most.
        """
        bounds = self.bounds(candidate, Bound.EXPECTED)[stage]
        return least_of(
            self.choice_peaks(candidate, stage, choice, mine, limit_s)
            for choice, mine in zip(self.choices(candidate), bounds, strict=True)
        )

    def choice_peaks(
        self,
        candidate: Candidate,
        stage: int,
        choice: StageChoice,
        bounds: ChoiceBounds,
        limit_s: float,
    ) -> Ints:
        """[A, B]: `peaks_within` of one choice, of which `bounds` are the steps."""
        count = candidate.num_micro_batches
        options = self.options(candidate, choice)
        placement = self.placement(candidate.num_stages)
        possible = placement.runs(options.least_peak < LARGEST_BYTES, stage)
        fewest = bounds.fewest_in_flight(possible, limit_s)
        stages = self.stage_bytes(candidate, Bound.UPPER, choice)
        peaks = np.full(possible.shape, LARGEST_BYTES)
        for in_flight in np.unique(fewest[fewest > 0]):
            runs = np.nonzero(fewest == in_flight)
            flow = self.stage_flow(candidate, stage, choice.capped(int(in_flight)))
            places, run, begins = options.of_runs(runs)
            found = option_peaks(stages, options, flow, runs)
            passes_s = bounds.of_most.passes[runs][run]
            steps = passes_s + count * options.seconds[places]
            found = np.where(steps <= limit_s, found, LARGEST_BYTES)
            peaks[runs] = np.minimum.reduceat(found, begins)
        return peaks


def quickest(
    options: OptionArrays, first: int, end: int, peaks: Ints, capacity_bytes: int
) -> int:
    """Option of least seconds that fits; ties to the lower peak."""
    mine = options.of(first, end)
    seconds = np.where(peaks <= capacity_bytes, options.seconds[mine], np.inf)
    return int(np.lexsort((options.num_recomputed[mine], peaks, seconds))[0])
