"""Options of single stages: what a stage does to fit, and how long that takes.

In: a tuple, a stage, a run of layers, a capacity, micro-batches in flight. Out: the
choice and the recomputed layers of the least step bound. The base of `TupleSearch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Ints
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
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
    added_s: tuple[float, float]
    """Of a forward and a backward pass, by the layers that are not kept."""
    forward_s: float
    """Forward pass."""
    backward_s: float
    """Backward pass with all that is added."""
    least_passes_s: tuple[float, float]
    """Of a backward and a forward pass with any option of the choice that fits."""
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

    def is_least_of(self, others: Iterable[StageOption]) -> bool:
        """Whether no option of their choices is shorter in anything."""
        return all(
            mine <= theirs
            for other in others
            for mine, theirs in zip(
                self.seconds, (*other.least_passes_s, other.end_s), strict=True
            )
        )

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
        flow = self.stage_flow(candidate, stage, choice)
        return peaks_of_run(
            self.stage_bytes(candidate, numbers.bytes, choice, flow.in_flight),
            self.options(candidate, choice, numbers),
            flow,
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
        found = [
            one
            for place in self.searched_on(
                candidate, stage, numbers.bytes, capacity_bytes
            )
            if (
                one := self.quickest_option(
                    *(candidate, stage, run, capacity_bytes),
                    *(in_flight, numbers, place),
                )
            )
        ]
        useful: list[StageOption] = []
        for one in sorted(found, key=lambda one: (one.exceeds, *one.seconds)):
            if one.exceeds and useful:
                break
            if not any(other.is_no_longer(one) for other in useful):
                useful.append(one)
        alone = len(useful) == 1 and useful[0].is_least_of(found)
        least_s = min(one.least_s for one in found)
        return tuple(
            replace(one, is_quickest=alone, least_s=least_s) for one in sorted(useful)
        )

    def quickest_option(
        self,
        candidate: Candidate,
        stage: int,
        run: tuple[int, int],
        capacity_bytes: int,
        in_flight: int,
        numbers: Numbers,
        place: int,
    ) -> StageOption | None:
        """Quickest option of one choice that fits, or one that does not.

        None if the layers have no way that the choice leaves them.
        """
        choice = self.choices(candidate)[place].capped(in_flight)
        options = self.options(candidate, choice, numbers)
        peaks = self.run_peaks(candidate, stage, run, choice, numbers)
        if not peaks.size:
            return None
        option = quickest(options, *run, peaks, capacity_bytes)
        added = self.added(candidate, choice, numbers.seconds)
        mine = self.bounds(candidate, numbers.seconds)[stage][place]
        pace = self.pace(stage)
        both_s = options.seconds[options.of(*run)][option : option + 1] * pace
        forward_s, total_s = 0.0, float(both_s[0])
        if added.is_in_forward:
            layers = list(options.recomputed(*run, option))
            forward_s = float(added.forward[layers].sum()) * pace
        least, most = added.in_forward
        bound = mine.of_run(run, in_flight)
        counted_s = both_s * self.counted(candidate, choice, numbers.seconds, in_flight)
        passes = float(mine.runs.forward[run]), float(mine.runs.backward[run])
        return StageOption(
            exceeds=int(peaks[option]) > capacity_bytes,
            step_s=float(bound.step_s(candidate.num_micro_batches, counted_s)[0]),
            end_s=float(mine.runs.end[run]),
            peak=int(peaks[option]),
            choice=place,
            option=option,
            added_s=(forward_s, total_s - forward_s),
            forward_s=passes[0] + forward_s,
            backward_s=passes[1] + total_s - forward_s,
            least_passes_s=(
                passes[1] + (1 - most) * total_s,
                passes[0] + least * total_s,
            ),
            in_flight=in_flight,
            least_s=float(bound.with_fewer[0]),
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
        added_s: tuple[float, float],
        bound: Bound,
    ) -> StageTimes:
        """Seconds and bytes of one run as a stage, with what is added to its passes."""
        costs, b = self.costs(candidate), candidate.micro_batch
        runs = costs.runs(candidate.offer, bound, b)
        stages = costs.stages(bound, b, choice.capped(None))
        exchange = self.exchange(candidate, bound, choice).of(run)
        forward, backward = pass_seconds(self.placed(candidate), stage, exchange)
        pace = self.pace(stage)
        return StageTimes(
            forward_s=float((runs.forward[run] + forward) * pace) + added_s[0],
            backward_s=float((runs.backward[run] + backward) * pace) + added_s[1],
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
        peaks = np.full(possible.shape, LARGEST_BYTES)
        for in_flight in np.unique(fewest[fewest > 0]):
            runs = np.nonzero(fewest == in_flight)
            flow = self.stage_flow(candidate, stage, choice.capped(int(in_flight)))
            stages = self.stage_bytes(candidate, Bound.UPPER, choice, flow.in_flight)
            places, run, begins = options.of_runs(runs)
            found = option_peaks(stages, options, flow, runs)
            passes_s = bounds.of_most.passes[runs][run]
            part = self.counted(candidate, choice, Bound.EXPECTED, bounds.caps[-1])
            steps = passes_s + count * part * options.seconds[places]
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
