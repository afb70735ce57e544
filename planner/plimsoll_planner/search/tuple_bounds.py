"""Lower bounds of tuples (offer, P, D, T, b): memory at any speed, time under it.

In: a candidate. Out: numbers and cuts. The base of `TupleSearch`, which adds plans.

    least_peak   least over all cuts and recompute sets of the largest rank's peak
    least_bound  least step bound over all plans whose every peak is within a capacity
    least_period what a micro-batch takes at least, for many tuples at once
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Floats, Ints
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
from plimsoll_planner.memory.stage_peaks import least_peaks
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.added_by_recomputing import AddedByRecomputing
from plimsoll_planner.search.choice_bounds import AddedSeconds, ChoiceBounds
from plimsoll_planner.search.family_bounds import FamilyBounds
from plimsoll_planner.search.numbers import FITTING, HOPED, Numbers
from plimsoll_planner.search.partition import Partition
from plimsoll_planner.search.periods import Periods
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_context import CutsOf, least_of
from plimsoll_planner.techniques.technique import StageChoice
from plimsoll_planner.timing.stage_runs import (
    EndSeconds,
    StageBound,
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
        self.family_bounds = FamilyBounds(self)
        self._least_peaks: dict[tuple[object, ...], list[int]] = {}
        self._stage_peaks: dict[tuple[object, ...], Ints] = {}
        self._bounds: dict[tuple[object, ...], list[Bounds]] = {}
        self.periods = Periods(self, self.added_by_any)
        self.quick_periods = Periods(self, self.least_added)

    # Memory at any speed.

    def simple_bounds(self, candidate: Candidate, bound: Bound) -> tuple[int, int]:
        """Two lower bounds of `least_peak`, in tensor bytes.

        One is all state, spread evenly; the other is the layer that is largest alone,
        with one micro-batch in flight.
        """
        largest = int(self.layers_alone(candidate, bound).max())
        return self.family_bounds.states(candidate, bound), largest

    def layers_alone(self, candidate: Candidate, bound: Bound) -> Ints:
        """Least bytes of each layer alone on a rank, one micro-batch in flight."""
        b, costs = candidate.micro_batch, self.costs(candidate)

        def alone(choice: StageChoice) -> Ints:
            chain = costs.bytes(bound, b, choice.capped(None))
            backward = chain.backward_transient, chain.backward_transient_at_end
            passes = np.maximum(chain.forward_transient, np.minimum(*backward))
            least = np.where(chain.allowed, passes, LARGEST_BYTES).min(axis=0)
            return np.asarray(chain.state + least)

        return np.asarray(least_of(map(alone, self.choices(candidate))))

    def layer_too_large(self, candidate: Candidate) -> str | None:
        """Name of the largest layer, if that alone exceeds a device."""
        alone = self.layers_alone(candidate, Bound.LOWER)
        largest = int(alone.argmax())
        exceeds = alone[largest] > self.capacity(candidate, Bound.LOWER)
        return self.problem.profile.layers.name[largest] if exceeds else None

    def fits(self, candidate: Candidate, *, merge: bool = False) -> bool:
        """Whether some plan's upper bytes fit; `merge` as in `Numbers`."""
        one = self.alike(candidate)

        def make() -> bool:
            capacity = self.capacity(one, Bound.UPPER)
            relaxed = self.family_bounds.relaxed(one, Bound.UPPER)
            if max(*self.simple_bounds(one, Bound.UPPER), relaxed) > capacity:
                return False
            return self.least_peak(one, Bound.UPPER, merge=merge) <= capacity

        return self.once(("fits", one, merge), make)

    def least_peak(
        self, candidate: Candidate, bound: Bound, *, merge: bool = False
    ) -> int:
        """Least peak in tensor bytes; `LARGEST_BYTES` if none exists.

        `merge` as in `Numbers`; for the lower bound pruned options are always merged.
        """
        if self.tables.is_grouped and (merge or bound is Bound.LOWER):
            return max(self.simple_bounds(candidate, bound))
        costs, b = self.costs(candidate), candidate.micro_batch
        merge = (merge or bound is Bound.LOWER) and any(
            costs.least_peak_options(bound, b, one, merge=False).pruned.any()
            for one in self.at_works(candidate)
        )
        return self.least_peaks(candidate, bound, merge)[candidate.num_stages]

    def least_peaks(self, candidate: Candidate, bound: Bound, merge: bool) -> list[int]:
        """Least peak of every number of stages."""
        placement = self.placement(candidate.num_stages)
        most = min(
            self.tables.num_layers,
            self.problem.limits.max_gpus // candidate.mesh.ranks_per_stage,
        )
        if not self.problem.engine.can.fewer_micro_batches_than_stages:
            most = min(most, candidate.num_micro_batches)
        most = max(most, candidate.num_stages)
        if not placement.is_free:
            most = candidate.num_stages
        key = (
            *(bound, merge, candidate.micro_batch, candidate.num_micro_batches),
            *(candidate.strategy.without_stages, self.host_share(candidate)),
            placement,
        )
        if (
            key not in self._least_peaks
            or len(self._least_peaks[key]) <= candidate.num_stages
        ):
            self._least_peaks[key] = placement.least_peaks(
                lambda left: self.stage_peaks(candidate, bound, left, merge=merge),
                most,
            )
            if bound is Bound.LOWER:
                self.family_bounds.note(candidate, self._least_peaks[key])
        return self._least_peaks[key]

    def stage_peaks(
        self, candidate: Candidate, bound: Bound, left: int, *, merge: bool
    ) -> Ints:
        """[A, B]: least peaks of a stage with `left` stages from it to the last."""
        costs, b = self.costs(candidate), candidate.micro_batch
        count = candidate.num_micro_batches
        fewest = self.caps(candidate.schedule, left, count)[0]
        flows = {
            choice: self.flow(candidate, left, choice.capped(fewest))
            for choice in self.choices(candidate)
        }

        def make() -> Ints:
            peaks = least_of(
                least_peaks(
                    self.stage_bytes(candidate, bound, one, flow.in_flight),
                    costs.least_peak_options(bound, b, one.at_work, merge=merge),
                    flow,
                )
                for one, flow in flows.items()
            )
            return np.minimum(peaks, LARGEST_BYTES)

        # With caps all stages but the last ones have one flow.
        share, of_choices = self.host_share(candidate), tuple(flows.items())
        key = (bound, merge, candidate.strategy.variant, share, of_choices)
        if key not in self._stage_peaks:
            self._stage_peaks.clear()
            self._stage_peaks[key] = make()
        return self._stage_peaks[key]

    # Time under a capacity.

    def bounds(self, candidate: Candidate, seconds_bound: Bound) -> list[Bounds]:
        """Step bounds of each stage and choice, before recomputing."""
        b, costs = candidate.micro_batch, self.costs(candidate)
        key = (
            *(self._alike[candidate.offer], candidate.strategy),
            *(b, seconds_bound),
        )
        if key not in self._bounds:
            if len(self._bounds) > MOST_BOUNDS:
                self._bounds.clear()
            of_choices = [
                stage_runs(
                    costs.runs(candidate.offer, seconds_bound, b),
                    costs.boundaries(seconds_bound, b),
                    self.exchange(candidate, seconds_bound, choice),
                    self.placed(candidate),
                    partial(choice.end_s, bound=seconds_bound),
                )
                for choice in self.choices(candidate)
            ]
            parts = [
                self.added(candidate, choice, seconds_bound).in_forward[1]
                for choice in self.choices(candidate)
            ]
            self._bounds[key] = [
                tuple(
                    self.bounds_of(candidate, stage, runs, in_forward)
                    for runs, in_forward in zip(of_stage, parts, strict=True)
                )
                for stage, of_stage in enumerate(zip(*of_choices, strict=True))
            ]
        return self._bounds[key]

    def bounds_of(
        self, candidate: Candidate, stage: int, runs: StageRuns, in_forward: float
    ) -> ChoiceBounds:
        """Step bounds of a stage, of which `runs` are the seconds with one choice."""
        caps = self.stage_caps(candidate, stage)

        def bound(runs: StageRuns, in_flight: int | Ints) -> StageBound:
            shape = candidate.num_stages, candidate.num_micro_batches
            return candidate.schedule.stage_bound(runs, stage, *shape, in_flight)

        return ChoiceBounds(runs=runs, caps=caps, bound=bound, in_forward=in_forward)

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
        asked = bounds, capacity_bytes

        def of_stage(stage: int, mine: Bounds) -> Floats:
            found = np.full_like(mine[0].runs.forward, np.inf)
            for choice, of_choice in zip(choices, mine, strict=True):
                added_s = partial(self.stage_added_s, candidate, stage, choice, *asked)
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
        """[A, B]: least seconds that recomputing adds to a stage with so many."""
        flow = self.stage_flow(candidate, stage, choice.capped(in_flight))
        return self.added_seconds(candidate, bounds, capacity_bytes, choice, flow)

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
        return shared_bound(chain, self.placed(candidate), count, least_s)

    def least_period(self, candidate: Candidate, bounds: Numbers = FITTING) -> float:
        """Lower bound of the seconds that a micro-batch takes; see `periods`."""
        return self.periods.least(candidate, bounds)

    def quick_period(self, candidate: Candidate, bounds: Numbers = FITTING) -> float:
        """A lower one at next to no cost."""
        return self.quick_periods.least(candidate, bounds)


def of_part(part: float) -> Steps:
    """Step bounds with a part of the most in flight."""
    return lambda one, count, added_s, _: one.steps(count, added_s, part)
