"""Least memory of tuples (offer, P, D, T, b) at any speed.

In: a candidate. Out: lower bounds of the largest rank's peak over all cuts and ways of
layers, in tensor bytes. The base of `AddedByRecomputing`.

**Offloading last.** The search looks for plans that offload where that pays, and
otherwise only within a capacity that no plan of the tuple has room in without. It pays
if some layer takes fewer seconds for each byte that it no longer holds, its input
included, than by recomputing, or cannot recompute. Proofs that no plan fits, or that
none is fast enough, count it always.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Floats, Ints
from plimsoll_planner.memory.chain_bytes import KEPT, LARGEST_BYTES, RECOMPUTED
from plimsoll_planner.memory.stage_peaks import least_peaks
from plimsoll_planner.records.engine import Way
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.family_bounds import FamilyBounds
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_context import CutsOf, TupleContext, least_of
from plimsoll_planner.techniques.technique import StageChoice


class LeastPeaks(TupleContext):
    """Least memory of single tuples; keeps what several of them share."""

    def __init__(self, problem: Problem, cuts_of: CutsOf | None = None) -> None:
        """Begin with none known; see `TupleContext`."""
        super().__init__(problem, cuts_of)
        self.family_bounds = FamilyBounds(self)
        self._least_peaks: dict[tuple[object, ...], list[int]] = {}
        self._stage_peaks: dict[tuple[object, ...], Ints] = {}

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

    def least_peaks(
        self, candidate: Candidate, bound: Bound, merge: bool, *, offload: bool = True
    ) -> list[int]:
        """Least peak of every number of stages; if not `offload`, of fewer plans."""
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
            *(placement, offload),
        )
        if (
            key not in self._least_peaks
            or len(self._least_peaks[key]) <= candidate.num_stages
        ):
            self._least_peaks[key] = placement.least_peaks(
                lambda left: self.stage_peaks(
                    candidate, bound, left, merge=merge, offload=offload
                ),
                most,
            )
            if bound is Bound.LOWER and offload:
                self.family_bounds.note(candidate, self._least_peaks[key])
        return self._least_peaks[key]

    def stage_peaks(
        self,
        candidate: Candidate,
        bound: Bound,
        left: int,
        *,
        merge: bool,
        offload: bool = True,
    ) -> Ints:
        """[A, B]: least peaks of a stage with `left` stages from it to the last."""
        costs, b = self.costs(candidate), candidate.micro_batch
        count = candidate.num_micro_batches
        fewest = self.caps(candidate.schedule, left, count)[0]
        flows = {
            choice: self.flow(candidate, left, choice.capped(fewest))
            for choice in self.choices(candidate)
            if offload or not offloads(choice)
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

    def searched(
        self, candidate: Candidate, bound: Bound, capacity_bytes: int
    ) -> list[int]:
        """Places of the choices that count, by the bound of their bytes."""
        choices = self.choices(candidate)
        every = list(range(len(choices)))
        if bound is Bound.LOWER or not any(map(offloads, choices)):
            return every
        one = self.alike(candidate)
        least = self.least_without(one)
        if self.offloading_pays(one) or least > capacity_bytes:
            return every
        return [place for place in every if not offloads(choices[place])]

    def searched_on(
        self, candidate: Candidate, stage: int, bound: Bound, capacity_bytes: int
    ) -> list[int]:
        """`searched` of one stage."""
        del stage
        return self.searched(candidate, bound, capacity_bytes)

    def offloads(self, candidate: Candidate, bound: Bound, capacity_bytes: int) -> bool:
        """Whether choices that offload count, by the bound of their bytes."""
        choices, asked = self.choices(candidate), (bound, capacity_bytes)
        return any(offloads(choices[at]) for at in self.searched(candidate, *asked))

    def least_without(self, candidate: Candidate) -> int:
        """Least peak of all plans that offload nothing, upper tensor bytes."""

        def make() -> int:
            found = self.least_peaks(candidate, Bound.UPPER, False, offload=False)
            return found[candidate.num_stages]

        return self.once(("least without", candidate), make)

    def offloading_pays(self, candidate: Candidate) -> bool:
        """Whether some layer spares bytes sooner by offloading; see the module."""
        costs, b = self.costs(candidate), candidate.micro_batch
        ways = {choice.other_way for choice in self.choices(candidate)}

        def seconds_per_byte(way: Way) -> Floats:
            added = costs.added(candidate.offer, Bound.EXPECTED, b, way).both
            chain = costs.bytes_in_way(Bound.UPPER, b, way)
            received = np.append(0, chain.boundary[:-1])
            held = chain.saved + received * chain.keeps_input
            spared = (held[KEPT] - held[RECOMPUTED]) * chain.allowed[RECOMPUTED]
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(spared > 0, added / spared, np.inf)

        def make() -> bool:
            again = seconds_per_byte(Way.RECOMPUTED)
            others = (seconds_per_byte(way) for way in ways if way.offloads)
            return any(bool((other < again).any()) for other in others)

        key = costs.variant, costs.clock(candidate.offer, Way.OFFLOADED), b
        return self.once(("offloading pays", key), make)


def offloads(choice: StageChoice) -> bool:
    """Whether layers that are not kept are offloaded."""
    return choice.other_way.offloads
