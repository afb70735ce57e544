"""Plans of one tuple within a capacity, for any cuts.

In: a tuple, a capacity, cuts. Out: the quickest plan of these cuts (`Found`). Called by
`tuple_search`, which asks for many cuts: what single stages do is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter

import numpy as np

from plimsoll_planner.search.cut_bounds import CutBounds
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.numbers import Numbers
from plimsoll_planner.search.plan_caps import CapSearch, Vector, passes_s
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.stage_options import StageOption, StageOptions
from plimsoll_planner.timing import step_walk
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.topology import Topology

Run = tuple[int, int]
Place = tuple[int, Run, int]
"""A stage, its layers, micro-batches in flight."""
Walked = tuple[float, list[StageOption]]
"""Seconds of a walked step, the options of its stages."""


@dataclass
class PlansWithin:
    """Plans of one tuple within a capacity of tensors, with some bytes and seconds."""

    search: StageOptions
    candidate: Candidate
    capacity_bytes: int
    numbers: Numbers
    num_walked: int = 0
    _options: dict[Place, tuple[StageOption, ...]] = field(
        default_factory=dict[Place, tuple[StageOption, ...]]
    )
    _times: dict[tuple[Place, int], StageTimes] = field(
        default_factory=dict[tuple[Place, int], StageTimes]
    )

    def found(
        self,
        cuts: tuple[int, ...],
        below_s: float = np.inf,
        first: tuple[int, ...] = (),
    ) -> tuple[Found | None, float]:
        """Plan of given cuts whose every stage recomputes as little as fits, walked.

        Every stage fits with some choice. Numbers in flight that are tried first may be
        given; they fit.

        Returns:
            The plan with the best numbers in flight that were found, None if no step
            is below `below_s`; and a lower bound of the step of these cuts.
        """
        candidate, runs = self.candidate, self.search.tables.runs_of(cuts)

        def option(stage: int, in_flight: int) -> StageOption:
            return self._option((stage, runs[stage], in_flight))

        walked: dict[Vector, Walked] = {}

        def step_s(vector: Vector) -> float:
            walked[vector] = self._best(runs, vector)
            return walked[vector][0]

        caps = CapSearch(
            caps=[self.search.stage_caps(candidate, s) for s in range(len(cuts))],
            option=option,
            step_s=step_s,
            bounds=self._bounds(runs),
            below_s=below_s,
            first=first,
        )
        least_s = caps.run()
        _, vector = caps.best
        if not vector:
            return None, least_s
        shortest_s, stages = self._improved(runs, *walked[vector])
        least_s = min(least_s, shortest_s)
        choices = self.search.choices(candidate)
        found = Found(
            candidate=candidate,
            cuts=cuts,
            recomputed=tuple(
                self._recomputed(run, one)
                for run, one in zip(runs, stages, strict=True)
            ),
            choices=tuple(choices[one.choice].capped(one.in_flight) for one in stages),
            bound_s=least_s,
            step_s=shortest_s,
            peaks=tuple(one.peak for one in stages),
        )
        return found, least_s

    def _recomputed(self, run: Run, one: StageOption) -> tuple[int, ...]:
        """Layers that recompute with an option."""
        choice = self.search.choices(self.candidate)[one.choice]
        options = self.search.options(self.candidate, choice, self.numbers)
        return options.recomputed(*run, one.option)

    def _bounds(self, runs: list[Run]) -> CutBounds:
        """Bounds of the steps of given cuts."""
        candidate = self.candidate
        costs = self.search.costs(candidate)
        sizes = costs.boundaries(self.numbers.seconds, candidate.micro_batch)
        return CutBounds(
            times=lambda stage, k: self._least_times((stage, runs[stage], k)),
            links_s=[
                hop.seconds(int(sizes[end - 1]))
                for hop, (_, end) in zip(self._placed.hops, runs[:-1], strict=True)
            ],
            schedule=candidate.schedule,
            num_micro_batches=self._count,
        )

    def _least_times(self, place: Place) -> StageTimes:
        """Least seconds of a stage with so many in flight, over all choices."""
        best, (stage, run, _) = self._option(place), place
        times = self._stage_times(place, best)
        if best.is_quickest:
            return times
        candidate = self.candidate
        costs, b = self.search.costs(candidate), candidate.micro_batch
        runs = costs.runs(candidate.offer, self.numbers.seconds, b)
        pace = self.search.pace(stage)
        return replace(
            times,
            forward_s=float(runs.forward[run]) * pace,
            backward_s=float(runs.backward[run]) * pace,
            end_s=0.0,
        )

    @cached_property
    def _placed(self) -> Topology:
        """Machines of the ranks."""
        return self.search.placed(self.candidate)

    @cached_property
    def _count(self) -> int:
        """M."""
        return self.candidate.num_micro_batches

    def _best(self, runs: list[Run], vector: Vector) -> Walked:
        """Shorter step of two ways to choose, with given numbers in flight.

        Each stage has the least bound alone, or each recomputes as little as it can.
        """
        places = list(enumerate(zip(runs, vector, strict=True)))
        every = [self._options_at((stage, *place)) for stage, place in places]
        alone = [options[0] for options in every]
        lightest = [min(options, key=passes_s) for options in every]
        ways = [alone] if alone == lightest else [alone, lightest]
        return min((self._walked(runs, way) for way in ways), key=itemgetter(0))

    def _improved(
        self, runs: list[Run], step_s: float, stages: list[StageOption]
    ) -> Walked:
        """Walk with the option of one stage after the other changed for the better."""
        for place, (stage, run) in enumerate(zip(list(stages), runs, strict=True)):
            for other in self._options_at((place, run, stage.in_flight)):
                if other != stages[place]:
                    changed = [*stages[:place], other, *stages[place + 1 :]]
                    walked = self._walked(runs, changed)
                    step_s, stages = min((step_s, stages), walked, key=itemgetter(0))
        return step_s, stages

    def _walked(self, runs: list[Run], stages: list[StageOption]) -> Walked:
        """Walked step of given options."""
        self.num_walked += 1
        times = [
            self._stage_times((stage, run, one.in_flight), one)
            for stage, (run, one) in enumerate(zip(runs, stages, strict=True))
        ]
        schedule = self.candidate.schedule
        return step_walk.walk(schedule, times, self._count, self._placed), stages

    def _option(self, place: Place) -> StageOption:
        """Best option of a stage alone, with so many in flight."""
        return self._options_at(place)[0]

    def _options_at(self, place: Place) -> tuple[StageOption, ...]:
        """Options of a stage with so many in flight that may be in the best plan."""
        if place not in self._options:
            stage, run, in_flight = place
            capacity = self.search.stage_capacity(stage, self.capacity_bytes)
            asked = stage, run, capacity, in_flight, self.numbers
            self._options[place] = self.search.useful_options(self.candidate, *asked)
        return self._options[place]

    def _stage_times(self, place: Place, one: StageOption) -> StageTimes:
        """Seconds and bytes of a stage with an option."""
        key = place, one.choice
        if key not in self._times:
            stage, run, in_flight = place
            choice = self.search.choices(self.candidate)[one.choice].capped(in_flight)
            self._times[key] = self.search.run_times(
                *(self.candidate, stage, run, choice), one.added_s, self.numbers.seconds
            )
        return self._times[key]
