"""Plans of single tuples (offer, P, D, b), exact in peak and step bound.

In: a candidate. Out: plans (`Found`). Called by `verdicts` and `explore`.

    fastest    of the least step bound among the plans whose upper bytes fit
    slimmest   of the least peak, then second largest peak, ..., within a step bound
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES, Bound, Flags, Ints
from plimsoll_planner.memory.recompute_labels import Labels
from plimsoll_planner.memory.stage_peaks import (
    label_peaks,
    peaks_of_run,
)
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.partition import (
    Order,
    Partition,
    StageChoice,
    least_largest,
    least_peak,
)
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_bounds import FITTING, CutsOf, TupleBounds
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.step_walk import walk

MOST_RECOMPUTED = np.iinfo(np.int32).max
"""Above every number of layers; of the type that labels count them in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One plan of a tuple."""

    candidate: Candidate
    cuts: tuple[int, ...]
    recomputed: tuple[tuple[int, ...], ...]
    """Layers that recompute, stage by stage."""
    bound_s: float
    """Lower bound of its step; infinite where none was asked."""
    step_s: float
    """Of the walked schedule, expected seconds."""
    peaks: tuple[int, ...]
    """Upper bounds of tensor bytes, stage by stage."""

    @property
    def order(self) -> Order:
        """What makes one plan slimmer than another."""
        return Order(
            peaks=tuple(sorted(self.peaks, reverse=True)),
            num_recomputed=sum(map(len, self.recomputed)),
            cuts=self.cuts,
        )


class TupleSearch(TupleBounds):
    """Plans of single tuples, and their bounds."""

    def __init__(self, problem: Problem, cuts_of: CutsOf | None = None) -> None:
        """Prepare the tables; see `TupleBounds`."""
        super().__init__(problem, cuts_of)
        self.num_plans = 0
        """Plans whose peaks were computed, for the statistics."""
        self.fastest_of: dict[Candidate, Found] = {}
        """The fastest plan of each tuple that was asked for."""
        self._quickest: dict[Candidate, Partition | None] = {}

    def quickest_cuts(self, candidate: Candidate) -> Partition | None:
        """Return the least step bound of the plans whose upper bytes fit."""
        if candidate not in self._quickest:
            capacity = self.allowance(candidate).tensor_capacity(Bound.UPPER)
            self._quickest[candidate] = (
                self.least_bound(candidate, FITTING, capacity)
                if self.fits(candidate)
                else None
            )
        return self._quickest[candidate]

    def fastest(self, candidate: Candidate) -> Found | None:
        """Return the plan of `quickest_cuts`, walked; None where none fits."""
        partition = self.quickest_cuts(candidate)
        if partition is None:
            return None
        if candidate not in self.fastest_of:
            self.fastest_of[candidate] = self.quickest_plan(candidate, partition)
        return self.fastest_of[candidate]

    def quickest_plan(self, candidate: Candidate, partition: Partition) -> Found:
        """Return the plan of given cuts whose every stage recomputes the least."""
        capacity_bytes = self.allowance(candidate).tensor_capacity(Bound.UPPER)
        labels = self.labels(candidate)
        chosen = [
            quickest(
                labels,
                first,
                end,
                self.run_peaks(candidate, s, first, end),
                capacity_bytes,
            )
            for s, (first, end) in enumerate(partition.stages(self.tables.num_layers))
        ]
        return self.found(candidate, partition.cuts, chosen, partition.value)

    def slimmest(
        self,
        candidate: Candidate,
        capacity_bytes: int,
        limit_s: float,
        *,
        in_order: bool = False,
    ) -> Found | None:
        """Return the plan of the least peak among those whose step bound is in limits.

        Args:
            candidate: the tuple.
            capacity_bytes: of tensors on a rank, for upper bounds.
            limit_s: largest step bound.
            in_order: break ties as `Order` does: second largest peaks and so on.
        """
        choices = [
            self.choices(candidate, stage, limit_s)
            for stage in range(candidate.num_stages)
        ]
        cuts: tuple[int, ...] | None = None
        if in_order:
            order = least_peak(choices)
            cuts = order.cuts if order else None
        else:
            peaks = [c.peaks.astype(np.float64) for c in choices]
            best = least_largest(peaks)
            cuts = best.cuts if best and best.value < LARGEST_BYTES else None
        if cuts is None:
            return None
        labels, base = self.labels(candidate), self.bounds(candidate, Bound.EXPECTED)
        count = candidate.num_micro_batches
        chosen: list[int] = []
        bound_s = self.shared_bound(candidate, Bound.EXPECTED)
        for s, (first, end) in enumerate(
            zip(cuts, (*cuts[1:], self.tables.num_layers), strict=True)
        ):
            bound = base[s][first, end] + count * labels.seconds[first, end]
            peaks_here = self.run_peaks(candidate, s, first, end)
            place = slim(labels, first, end, peaks_here, bound <= limit_s)
            bound_s = max(bound_s, float(bound[place]))
            chosen.append(place)
        found = self.found(candidate, cuts, chosen, bound_s)
        return found if max(found.peaks) <= capacity_bytes else None

    def choices(self, candidate: Candidate, stage: int, limit_s: float) -> StageChoice:
        """Return [A, B]: least peaks of one stage within a step bound."""
        labels = self.labels(candidate)
        base = self.bounds(candidate, Bound.EXPECTED)[stage]
        count = candidate.num_micro_batches
        slow = ~(base[:, :, None] + count * labels.seconds <= limit_s)
        stages = self.tables.stages(Bound.UPPER, candidate.micro_batch)
        peaks = label_peaks(stages, labels, self.flow(candidate, stage))
        peaks = np.where(slow | (labels.peak >= LARGEST_BYTES), LARGEST_BYTES, peaks)
        allowed = self.possible(candidate.num_stages, stage)
        if allowed is not None:
            peaks = np.where(allowed[:, :, None], peaks, LARGEST_BYTES)
        least = peaks.min(axis=2)
        counts = labels.num_recomputed.min(
            axis=2, where=peaks == least[:, :, None], initial=MOST_RECOMPUTED
        )
        return StageChoice(peaks=least, num_recomputed=counts)

    def labels(self, candidate: Candidate) -> Labels:
        """Return the labels that plans are made from."""
        return self.tables.labels(candidate.offer, *FITTING, candidate.micro_batch)

    def run_peaks(self, candidate: Candidate, stage: int, first: int, end: int) -> Ints:
        """Return [n]: upper peaks of the labels of one run as one stage."""
        return peaks_of_run(
            self.tables.stages(Bound.UPPER, candidate.micro_batch),
            self.labels(candidate),
            self.flow(candidate, stage),
            first,
            end,
        )

    def found(
        self,
        candidate: Candidate,
        cuts: tuple[int, ...],
        chosen: list[int],
        bound_s: float,
    ) -> Found:
        """Write a plan down and walk its schedule."""
        self.num_plans += 1
        labels = self.labels(candidate)
        ends = (*cuts[1:], self.tables.num_layers)
        recomputed = tuple(
            labels.recomputed(first, end, place)
            for first, end, place in zip(cuts, ends, chosen, strict=True)
        )
        peaks = tuple(
            int(self.run_peaks(candidate, s, first, end)[place])
            for s, (first, end, place) in enumerate(
                zip(cuts, ends, chosen, strict=True)
            )
        )
        return Found(
            candidate=candidate,
            cuts=cuts,
            recomputed=recomputed,
            bound_s=bound_s,
            step_s=self.step_s(candidate, cuts, recomputed, Bound.EXPECTED),
            peaks=peaks,
        )

    def step_s(
        self,
        candidate: Candidate,
        cuts: tuple[int, ...],
        recomputed: tuple[tuple[int, ...], ...],
        bound: Bound,
    ) -> float:
        """Return the seconds of the walked step."""
        times = self.stage_times(candidate, cuts, recomputed, bound)
        return walk(times, candidate.num_micro_batches, self.placed(candidate))

    def stage_times(
        self,
        candidate: Candidate,
        cuts: tuple[int, ...],
        recomputed: tuple[tuple[int, ...], ...],
        bound: Bound,
    ) -> list[StageTimes]:
        """Return the seconds and bytes of every stage."""
        b = candidate.micro_batch
        runs = self.tables.runs(candidate.offer, bound, b)
        added = self.tables.seconds(candidate.offer, bound, b).recompute
        stages = self.tables.stages(bound, b)
        ends = (*cuts[1:], self.tables.num_layers)
        return [
            StageTimes(
                forward_s=float(runs.forward[first, end]),
                backward_s=float(runs.backward[first, end] + added[list(again)].sum()),
                sent_bytes=int(stages.sent[end]),
                gradient_bytes=int(stages.gradient[first, end]),
                num_exchanges=int(stages.num_exchanges[first, end]),
                optimizer_step_s=float(runs.optimizer_step[first, end]),
            )
            for first, end, again in zip(cuts, ends, recomputed, strict=True)
        ]


def quickest(
    labels: Labels, first: int, end: int, peaks: Ints, capacity_bytes: int
) -> int:
    """Return the label of least seconds that fits; ties to the lower peak."""
    seconds = np.where(peaks <= capacity_bytes, labels.seconds[first, end], np.inf)
    return int(np.lexsort((labels.num_recomputed[first, end], peaks, seconds))[0])


def slim(labels: Labels, first: int, end: int, peaks: Ints, fast: Flags) -> int:
    """Return the label of the least peak that is fast enough; ties to fewer layers."""
    within = np.where(fast, peaks, LARGEST_BYTES)
    seconds = labels.seconds[first, end]
    return int(np.lexsort((seconds, labels.num_recomputed[first, end], within))[0])
