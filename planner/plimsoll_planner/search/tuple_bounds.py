"""Lower bounds of tuples (offer, P, D, T, b): seconds of a step within a capacity.

In: a candidate. Out: numbers and cuts. The base of `TupleSearch`, which adds plans.

    least_bound  least step bound over all plans whose every peak is within a capacity
    least_period what a micro-batch takes at least, for many tuples at once
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Floats
from plimsoll_planner.records.engine import Way
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.added_by_recomputing import AddedByRecomputing
from plimsoll_planner.search.choice_bounds import AddedSeconds, ChoiceBounds
from plimsoll_planner.search.numbers import FITTING, HOPED, Numbers
from plimsoll_planner.search.partition import Partition
from plimsoll_planner.search.periods import Periods
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_context import CutsOf, least_of
from plimsoll_planner.techniques.technique import StageChoice
from plimsoll_planner.timing.stage_runs import (
    EndSeconds,
    StageRuns,
    shared_bound,
    stage_runs,
)

Bounds = tuple[ChoiceBounds, ...]
"""Of one stage, one for each choice."""
Steps = Callable[[ChoiceBounds, int, AddedSeconds, Floats], Floats]
"""Step bounds [A, B] of a choice, by M and the least that other choices have."""
HALF = 0.5
MOST_BOUNDS = 8
"""Tuples whose step bounds are kept."""


class TupleBounds(AddedByRecomputing):
    """Bounds of single tuples; keeps what several of them share."""

    def __init__(self, problem: Problem, cuts_of: CutsOf | None = None) -> None:
        """Prepare the tables; see `TupleContext`."""
        super().__init__(problem, cuts_of)
        self._bounds: dict[tuple[object, ...], list[Bounds]] = {}
        self.periods = Periods(self, self.added_by_any)
        self.quick_periods = Periods(self, self.least_added)

    def bounds(self, candidate: Candidate, seconds_bound: Bound) -> list[Bounds]:
        """Step bounds of each stage and choice, before recomputing."""
        key = (
            *(self._alike[candidate.offer], candidate.strategy),
            *(candidate.micro_batch, seconds_bound),
        )
        if key not in self._bounds:
            if len(self._bounds) > MOST_BOUNDS:
                self._bounds.clear()
            # Those of choices that differ by a way of layers are the same.
            ways = [choice.without_way for choice in self.choices(candidate)]
            of_choices = {
                way: self.bounds_of(candidate, choice, seconds_bound)
                for way, choice in zip(ways, self.choices(candidate), strict=True)
                if choice.other_way is Way.RECOMPUTED
            }
            every = zip(*(of_choices[way] for way in ways), strict=True)
            self._bounds[key] = list(every)
        return self._bounds[key]

    def bounds_of(
        self, candidate: Candidate, choice: StageChoice, seconds_bound: Bound
    ) -> list[ChoiceBounds]:
        """Step bounds of each stage with one choice."""
        b, costs = candidate.micro_batch, self.costs(candidate)
        of_stages = stage_runs(
            costs.runs(candidate.offer, seconds_bound, b),
            costs.boundaries(seconds_bound, b),
            self.exchange(candidate, seconds_bound, choice),
            self.placed(candidate),
            partial(choice.end_s, bound=seconds_bound),
        )

        def bounds(stage: int, runs: StageRuns) -> ChoiceBounds:
            shape = candidate.num_stages, candidate.num_micro_batches
            return ChoiceBounds(
                runs=runs.paced(self.pace(stage), self.pace()),
                caps=self.stage_caps(candidate, stage),
                bound=lambda some, in_flight: candidate.schedule.stage_bound(
                    some, stage, *shape, in_flight
                ),
            )

        return [bounds(stage, runs) for stage, runs in enumerate(of_stages)]

    def least_bound(
        self, candidate: Candidate, bounds: Numbers, capacity_bytes: int
    ) -> Partition | None:
        """Least step bound of the plans within a capacity of tensors, and its cuts."""
        if capacity_bytes < 0:
            return None
        if self.tables.is_grouped and bounds.merge:
            return Partition(value=0.0, cuts=())
        values = self.step_bounds(candidate, bounds, capacity_bytes)
        found = self.placement(candidate.num_stages).least_largest(values)
        if found is None:
            return None
        least = self.shared_bound(candidate, bounds.seconds)
        return Partition(value=max(found.value, least), cuts=found.cuts)

    def step_bounds(
        self, candidate: Candidate, bounds: Numbers, capacity_bytes: int
    ) -> list[Floats]:
        """Step bound of every stage [A, B] with the quickest choices that fit.

        Of runs that no cuts of the least step bound have, it may be a lower one.
        """
        below_s = np.inf
        if len(self.stage_caps(candidate, 0)) > 1:
            below_s = self.some_bound(candidate, bounds, capacity_bytes)
        return self.over_choices(
            candidate,
            *(bounds, capacity_bytes),
            lambda one, count, added_s, found: one.least_steps(
                count, added_s, np.minimum(found, below_s)
            ),
        )

    def some_bound(
        self, candidate: Candidate, bounds: Numbers, capacity_bytes: int
    ) -> float:
        """Least step bound of the plans that have as many in flight as is usual.

        Also those with a half, a quarter, ... of that on each stage, down to one, as
        long as it falls.
        """
        part, found = 1.0, np.inf
        while self.stage_caps(candidate, 0)[-1] * part > HALF:
            values = self.over_choices(
                candidate,
                *(bounds, capacity_bytes),
                of_part(part),
            )
            best = self.placement(candidate.num_stages).least_largest(values)
            value = np.inf if best is None else best.value
            if value > found:
                break
            found, part = value, part / 2
        return found

    def over_choices(
        self,
        candidate: Candidate,
        bounds: Numbers,
        capacity_bytes: int,
        steps: Steps,
    ) -> list[Floats]:
        """[A, B] of each stage: least of the steps of all choices.

        `steps` are those of one choice; it is given the least of the choices before.
        """
        count, choices = candidate.num_micro_batches, self.choices(candidate)

        def of_stage(stage: int, mine: Bounds) -> Floats:
            found = np.full_like(mine[0].runs.forward, np.inf)
            capacity = self.stage_capacity(stage, capacity_bytes)
            searched = self.searched_on(candidate, stage, bounds.bytes, capacity)
            for choice, of_choice in ((choices[at], mine[at]) for at in searched):
                asked = stage, choice, bounds, capacity
                added_s = partial(self.stage_added_s, candidate, *asked)
                found = np.minimum(found, steps(of_choice, count, added_s, found))
            return found

        every = self.bounds(candidate, bounds.seconds)
        return [of_stage(stage, mine) for stage, mine in enumerate(every)]

    def stage_added_s(
        self,
        candidate: Candidate,
        stage: int,
        choice: StageChoice,
        bounds: Numbers,
        capacity_bytes: int,
        in_flight: int,
    ) -> Floats:
        """[A, B]: least seconds that a way adds to a stage, as `counted` has them."""
        flow = self.stage_flow(candidate, stage, choice.capped(in_flight))
        found = self.added_seconds(candidate, bounds, capacity_bytes, choice, flow)
        part = self.counted(candidate, choice, bounds.seconds, in_flight)
        part *= self.pace(stage)
        return found if part == 1 else found * part

    def counted(
        self,
        candidate: Candidate,
        choice: StageChoice,
        seconds_bound: Bound,
        in_flight: int,
    ) -> float:
        """Part of the seconds that a way adds which counts in each backward pass.

        In the bound of a step (`schedules`) M of those of a backward pass count, and
        M - k + 1 of those of a forward pass, of which this is the largest part.
        """
        _, in_forward = self.added(candidate, choice, seconds_bound).in_forward
        return 1 - (in_flight - 1) * in_forward / candidate.num_micro_batches

    def hoped(self, candidate: Candidate) -> Numbers:
        """`HOPED`, or its equal that is at hand where no plan was left out."""
        costs, b = self.costs(candidate), candidate.micro_batch
        is_open = self.tables.is_grouped or any(
            costs.options(candidate.offer, *FITTING, b, one).pruned.any()
            for one in self.at_works(candidate)
        )
        return HOPED if is_open else FITTING

    def shared_bound(self, candidate: Candidate, seconds_bound: Bound) -> float:
        """Bound that shared cores give; 0 where ranks share none."""
        costs, b = self.costs(candidate), candidate.micro_batch
        chain = costs.seconds(candidate.offer, seconds_bound, b)
        nothing = np.zeros_like(chain.optimizer_step)
        end = EndSeconds(
            exchange=nothing,
            optimizer=chain.optimizer_step,
            host_step=chain.host_step,
            to_host=nothing,
            from_host=nothing,
        )
        # Layers of one stage choose alike, and those of two may not.
        choices, count = self.choices(candidate), candidate.num_micro_batches
        of_layers = least_of(choice.end_s(end, seconds_bound) for choice in choices)
        least_s = float(of_layers.sum())
        placed = self.placed(candidate)
        return min(self.pace(), 1.0) * shared_bound(chain, placed, count, least_s)

    def least_period(self, candidate: Candidate, bounds: Numbers = FITTING) -> float:
        """Lower bound of the seconds that a micro-batch takes; see `periods`."""
        return self.periods.least(candidate, bounds)

    def quick_period(self, candidate: Candidate, bounds: Numbers = FITTING) -> float:
        """A lower one at next to no cost."""
        return self.quick_periods.least(candidate, bounds)


def of_part(part: float) -> Steps:
    """Step bounds with a part of the most in flight."""
    return lambda one, count, added_s, _: one.steps(count, added_s, part)
