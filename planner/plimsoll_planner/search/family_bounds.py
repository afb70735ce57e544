"""Bounds of families: tuples that are decided together, before each is searched.

In: a candidate. Out: lower bounds of its least peak at any speed, in tensor bytes, that
cost next to nothing. Called by `tuple_bounds`.

**Relaxed.** One bound for all D and b of a number of stages: every layer has the least
bytes that it has at any micro-batch of the problem, a stage has as few micro-batches in
flight as any M and cap leave it, whose inputs alone it holds, and gradients have no
copies. Unless ranks may hold less with more replicas; then each D has its own.

**Dominated.** Let b < b' be micro-batches of one strategy on which lines were fitted,
neither probed one by one, and the schedule saturated with M' < M (for 1F1B, M' >= P).
Then a tuple with b' has at least the least peak of that with b, if the engine makes
receive buffers just in time and keeps no outputs. For any cuts, ways and choices, each
term of `rank_peak` is a sum of bytes of layers, whose lines do not fall, with factors
that are the same for b and b': k is, whatever its cap; inputs are b M = b' M' = B / D
samples; [M > k] matters where u_{A-1} > 0, on stages s >= 1, and there k < M' < M. So
no sum falls, and no maximum of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from plimsoll_planner.memory.bounds import Bound, Ints
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.stage_peaks import least_peaks
from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.engine import ReceiveBuffers
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.schedules import SCHEDULES
from plimsoll_planner.search.space import Candidate, Family
from plimsoll_planner.search.tuple_context import TupleContext, least_of
from plimsoll_planner.techniques import falls_with_replicas


class Known(NamedTuple):
    """Least peaks of one micro-batch, for every number of stages."""

    micro_batch: int
    least_peaks: list[int]


class FamilyBounds:
    """Bounds of families; keeps what their tuples share."""

    def __init__(self, context: TupleContext) -> None:
        """Begin with none known."""
        self._context = context
        self._known: dict[tuple[Strategy, int], list[Known]] = defaultdict(list)

    def relaxed(self, candidate: Candidate, bound: Bound) -> int:
        """Relaxed bound of the least peak; 0 if cuts are fixed or grouped."""
        context, stages = self._context, candidate.num_stages
        placement = context.placement(stages)
        if context.tables.is_grouped or not placement.is_free:
            return 0
        strategy = candidate.strategy.without_stages
        if not falls_with_replicas(context.problem):
            strategy = replace(strategy, mesh=replace(strategy.mesh, data=1))
        most_stages = context.problem.limits.max_gpus // strategy.mesh.num_gpus
        most = max(min(context.tables.num_layers, most_stages), stages)
        has_host = context.host_share(candidate) > 0
        found = context.once(
            ("relaxed peaks", bound, strategy, has_host),
            lambda: placement.least_peaks(
                lambda left: self._relaxed_peaks(strategy, has_host, bound, left), most
            ),
        )
        return min(found[stages], LARGEST_BYTES)

    def _relaxed_peaks(
        self, strategy: Strategy, has_host: bool, bound: Bound, left: int
    ) -> Ints:
        """[A, B]: relaxed peaks of a stage, `left` stages from it to the last."""
        tables, can = self._context.tables, self._context.problem.engine.can
        costs = tables.of(strategy.variant)
        fewest = 1 if can.fewer_micro_batches_than_stages else left
        in_flight = self._context.caps(SCHEDULES[strategy.schedule], left, fewest)[0]
        flow = Flow(
            in_flight=in_flight,
            num_micro_batches=in_flight,
            micro_batch=tables.micro_batches[0],
            data_degree=strategy.mesh.data,
        )
        return least_of(
            least_peaks(
                costs.relaxed_stages(bound, choice),
                costs.relaxed_options(bound, choice.at_work),
                choice.flow(flow),
            )
            for choice in self._context.stage_choices(strategy, has_host)
        )

    def states(self, candidate: Candidate, bound: Bound) -> int:
        """Least peak if all state, shared parts once, were spread evenly over P."""
        chains = [
            choice.bytes(self._context.costs(candidate).relaxed_bytes(bound))
            for choice in self._context.choices(candidate)
        ]
        shared = sum(
            (len(ties[0].members) - 1) * max(tie.state for tie in ties)
            for ties in zip(*(chain.ties for chain in chains), strict=True)
        )
        total = int(least_of(chain.state for chain in chains).sum()) - shared
        return int(-(-total // candidate.num_stages))

    def failure(self, family: Family) -> tuple[Rule, int] | None:
        """Rule by which all tuples fail for lack of memory, and a lower bound.

        The bound is in tensor bytes; None if neither rule decides the family.
        """
        capacity = self._capacity(family, Bound.LOWER)
        for rule, least in (
            (Rule.STATES_EXCEED, self.states(family.first, Bound.LOWER)),
            (Rule.MEMORY_RELAXED, self.relaxed(family.first, Bound.LOWER)),
        ):
            if least > capacity:
                return rule, least
        return None

    def may_fit(self, family: Family) -> bool:
        """Whether the upper bytes of some tuple may be within the capacity."""
        least = self.least(family.first, Bound.UPPER)
        return least <= self._capacity(family, Bound.UPPER)

    def least(self, candidate: Candidate, bound: Bound) -> int:
        """Larger one of both bounds, in tensor bytes."""
        return max(self.states(candidate, bound), self.relaxed(candidate, bound))

    def _capacity(self, family: Family, bound: Bound) -> int:
        """Most tensor bytes that any of the tuples has room for."""
        like, communicators, _ = self._context.surroundings(family.first)
        key = ("family capacity", bound, like, communicators, family.micro_batches)
        return self._context.once(
            key,
            lambda: max(self._context.capacity(one, bound) for one in family.members()),
        )

    def note(self, candidate: Candidate, least_peaks: list[int]) -> None:
        """Remember least peaks, lower bytes, of all numbers of stages."""
        known = Known(candidate.micro_batch, least_peaks)
        self._known[self._alike(candidate)].append(known)

    def _alike(self, candidate: Candidate) -> tuple[Strategy, int]:
        """Key of all tuples that differ by micro-batch and stages alone."""
        share = self._context.host_share(candidate)
        return candidate.strategy.without_stages, share

    def dominated(self, candidate: Candidate) -> int:
        """Least peak, lower bytes, of a tuple that has no more; 0 if none is known.

        One that lacks the memory of its machine has none.
        """
        costs, stages = self._context.costs(candidate), candidate.num_stages
        holdings = costs.holdings
        is_monotone = (
            holdings.buffers is ReceiveBuffers.JUST_IN_TIME
            and not holdings.output_kept
            and candidate.schedule.is_saturated(stages, candidate.num_micro_batches)
            and self._context.placement(stages).is_free
        )
        if not is_monotone:
            return 0
        peaks = (
            known.least_peaks[stages]
            for known in self._known[self._alike(candidate)]
            if costs.num_probed < known.micro_batch < candidate.micro_batch
            and stages < len(known.least_peaks)
        )
        return max((peak for peak in peaks if peak < LARGEST_BYTES), default=0)
