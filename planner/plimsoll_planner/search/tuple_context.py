"""Surroundings of single tuples: devices, links, flows, choices, cuts that are fixed.

In: a candidate. Out: all that its bounds and plans are computed from. The base of
`TupleBounds`; keeps what several tuples share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.bounds import Bound, Ints
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.host_memory import rank_bytes, share
from plimsoll_planner.memory.stage_peaks import StageBytes
from plimsoll_planner.overhead.allowance import (
    Allowance,
    allowance,
    num_communicators,
    overhead_for,
)
from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import NUMBER_BYTES
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.search.alike import first_alike
from plimsoll_planner.search.cost_tables import MOST_GROUPS, CostTables
from plimsoll_planner.search.placement import FixedCuts, Placement
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.variant_tables import VariantTables
from plimsoll_planner.techniques import stage_choices
from plimsoll_planner.techniques.technique import StageChoice
from plimsoll_planner.timing.added_seconds import AddedSeconds
from plimsoll_planner.timing.schedule import PipelineSchedule
from plimsoll_planner.timing.stage_runs import Exchange
from plimsoll_planner.timing.topology import Topology, topology

Number = TypeVar("Number", np.int64, np.float64)
CutsOf = Callable[[int], tuple[int, ...]]
"""From P to the first layer of each stage."""

ANY_CUTS = Placement()
Surroundings = tuple[int, tuple[int, int], int]
"""An offer, the fewest and the most communicators of a rank, a micro-batch."""


class TupleContext:
    """Surroundings of single tuples."""

    def __init__(self, problem: Problem, cuts_of: CutsOf | None = None) -> None:
        """Prepare the tables; raises what `CostTables` raises.

        `cuts_of` is a rule that cuts P stages in one way only; None: all cuts.
        """
        self.problem = problem
        self._cuts_of = cuts_of
        self.tables = CostTables(problem)
        if cuts_of is not None and self.tables.is_grouped:
            raise CannotPlanError(
                f"the profile has {len(problem.profile.layers.name)} layers, rules of "
                f"cutting are compared for up to {MOST_GROUPS}: profile larger blocks "
                "as one layer"
            )
        tied = problem.profile.tied
        self._num_ties = len({tie.layers for tie in tied if tie.gradient_bytes})
        self._alike = first_alike(problem.offers)
        self._host_shares = [share(offer) for offer in problem.offers]
        self.once = self.tables.once

    def costs(self, candidate: Candidate) -> VariantTables:
        """Tables of the layers as the ranks of a tuple have them."""
        return self.tables.of(candidate.strategy.variant)

    def alike(self, candidate: Candidate) -> Candidate:
        """The tuple of the first offer with such machines, at any price."""
        offer = self._alike[candidate.offer]
        return (
            candidate if offer == candidate.offer else replace(candidate, offer=offer)
        )

    def allowance(self, candidate: Candidate) -> Allowance:
        """Bytes of a device besides tensors."""
        problem, offer = self.problem, self.problem.offers[candidate.offer]
        around = self.surroundings(candidate)

        def make() -> Allowance:
            return allowance(
                offer,
                problem.limits,
                overhead_for(offer, problem.overheads, problem.profile.fingerprint),
                problem.engine,
                micro_batch=candidate.micro_batch,
                communicators=around[1],
            )

        return self.once(("allowance", around), make)

    def surroundings(self, candidate: Candidate) -> Surroundings:
        """All that the bytes besides tensors depend on."""
        communicators = num_communicators(candidate.mesh, self._num_ties)
        return self._alike[candidate.offer], communicators, candidate.micro_batch

    def capacity(self, candidate: Candidate, bound: Bound) -> int:
        """Most tensor bytes that a rank has room for."""
        key = ("capacity", self.surroundings(candidate), bound)
        return self.once(key, lambda: self.allowance(candidate).tensor_capacity(bound))

    def placed(self, candidate: Candidate) -> Topology:
        """Machines of the ranks."""
        offer, mesh = self._alike[candidate.offer], candidate.mesh
        return self.once(
            ("placed", offer, mesh), lambda: topology(self.problem.offers[offer], mesh)
        )

    def price_per_hour(self, candidate: Candidate) -> Decimal | None:
        """Price of all nodes, None if the offer states none."""
        price = self.problem.offers[candidate.offer].price_per_node_hour
        return None if price is None else price * self.placed(candidate).num_nodes

    def choices(self, candidate: Candidate) -> tuple[StageChoice, ...]:
        """Choices that each stage has."""
        return self.stage_choices(candidate.strategy, self.host_share(candidate) > 0)

    def stage_choices(
        self, strategy: Strategy, has_host: bool
    ) -> tuple[StageChoice, ...]:
        """Choices that each stage has under a strategy, the same for all P."""
        alike, b = strategy.without_stages, self.tables.micro_batches[0]
        costs = self.tables.of(strategy.variant)

        def make() -> tuple[StageChoice, ...]:
            chains = [costs.bytes(bound, b) for bound in Bound]
            return stage_choices(alike, self.problem, chains, has_host=has_host)

        return self.once(("choices", alike, has_host), make)

    def at_works(self, candidate: Candidate) -> tuple[StageChoice, ...]:
        """Parts of its choices that options are built for."""
        return tuple({choice.at_work: None for choice in self.choices(candidate)})

    def host_share(self, candidate: Candidate) -> int:
        """Memory of the machine that a rank may take, bytes."""
        return self._host_shares[candidate.offer]

    def sharding(self, candidate: Candidate) -> Sharding:
        """Up to which level each stage may be sharded."""
        stated = [one.stated.get("sharding") for one in self.choices(candidate)]
        found = [one for one in Sharding if one in stated]
        return found[-1] if found else Sharding.NONE

    def caps(self, schedule: PipelineSchedule, num_left: int, count: int) -> range:
        """Numbers in flight that a stage may have of so many micro-batches, rising.

        There are `num_left` stages from it to the last.
        """
        every = schedule.caps(num_left, count)
        fixed = self.problem.override.in_flight_caps
        if not self.problem.has_in_flight_caps:
            return every[-1:]
        if not fixed:
            return every
        # Without so many stages nothing is fixed for them, and none of them is planned.
        cap = fixed[-num_left] if num_left <= len(fixed) else every[0]
        return range(min(cap, every[-1]), min(cap, every[-1]) + 1)

    def stage_caps(self, candidate: Candidate, stage: int) -> range:
        """Numbers in flight that one stage may have."""
        left = candidate.num_stages - stage
        return self.caps(candidate.schedule, left, candidate.num_micro_batches)

    def leanest(self, candidate: Candidate, stage: int) -> tuple[StageChoice, ...]:
        """Choices of a stage with the fewest in flight, which hold the least."""
        least = self.stage_caps(candidate, stage)[0]
        return tuple(choice.capped(least) for choice in self.choices(candidate))

    def added(
        self, candidate: Candidate, choice: StageChoice, bound: Bound
    ) -> AddedSeconds:
        """Seconds of layers that are not kept."""
        asked = bound, candidate.micro_batch, choice.other_way
        return self.costs(candidate).added(candidate.offer, *asked)

    def stage_bytes(
        self,
        candidate: Candidate,
        bound: Bound,
        choice: StageChoice,
        in_flight: int,
    ) -> StageBytes:
        """Bytes of every run of layers as one stage with so many in flight.

        A run that takes more than its share of the machine's memory fits no device.
        """
        asked = bound, candidate.micro_batch, choice.capped(None).without_way
        costs = self.costs(candidate)
        if not choice.uses_host:
            return costs.stages(*asked)
        room = self.host_share(candidate)
        offloads = choice.other_way.offloads and bound is not Bound.LOWER
        count = choice.other_way, in_flight if offloads else 0

        def make() -> StageBytes:
            taken = self.host_bytes(candidate, bound, choice, in_flight)
            stages = costs.stages(*asked)
            fits = taken <= room
            return stages if fits.all() else stages.only_where(fits)

        return costs.once(("within the host", room, count, *asked), make)

    def exchange(
        self, candidate: Candidate, bound: Bound, choice: StageChoice
    ) -> Exchange:
        """Every run of layers: what replicas exchange and step on."""
        asked = bound, candidate.micro_batch, choice.capped(None).without_way
        costs, recipe = self.costs(candidate), self.problem.profile.recipe
        stages = costs.stages(*asked)
        return costs.once(
            ("exchange", *asked),
            lambda: Exchange(
                at_end=stages.at_end,
                in_forward=stages.in_forward,
                in_backward=stages.in_backward,
                copies=stages.num_trained,
                to_host_bytes=stages.owned * NUMBER_BYTES[recipe.sums_in],
                from_host_bytes=stages.owned * NUMBER_BYTES[recipe.precision],
            ),
        )

    def host_bytes(
        self,
        candidate: Candidate,
        bound: Bound,
        choice: StageChoice,
        in_flight: int,
    ) -> Ints:
        """[A, B]: memory of the machine that a rank takes with so many in flight.

        All layers of a stage count as offloaded; for the lower bound none do.
        """
        found = self.state_on_host(candidate, bound, choice)
        if bound is Bound.LOWER or not choice.other_way.offloads:
            return found
        asked = bound, candidate.micro_batch, choice.other_way
        return found + in_flight * self.costs(candidate).offloaded(*asked)

    def state_on_host(
        self, candidate: Candidate, bound: Bound, choice: StageChoice
    ) -> Ints:
        """[A, B]: memory of the machine that a rank takes, without activations."""
        asked = bound, candidate.micro_batch, choice.capped(None)
        costs, profile = self.costs(candidate), self.problem.profile
        stages, largest = costs.stages(*asked), costs.bytes(*asked).owned
        of_rank = profile.device_kind, profile.recipe, bound
        return rank_bytes(stages, *of_rank, int(largest.max()))

    def stage_flow(self, candidate: Candidate, stage: int, choice: StageChoice) -> Flow:
        """Flow through one stage."""
        return self.flow(candidate, candidate.num_stages - stage, choice)

    def flow(self, candidate: Candidate, num_left: int, choice: StageChoice) -> Flow:
        """Flow through a stage with so many stages from it to the last."""
        count = candidate.num_micro_batches
        flow = Flow(
            in_flight=candidate.schedule.in_flight(num_left, count),
            num_micro_batches=count,
            micro_batch=candidate.micro_batch,
            data_degree=candidate.mesh.data,
        )
        return choice.flow(flow)

    def pace(self, stage: int | None = None) -> float:
        """Seconds of a stage's passes over those of the profile; None: the least.

        1, unless the plan runs already (`revised_search`).
        """
        del stage
        return 1.0

    def stage_capacity(self, stage: int, capacity_bytes: int) -> int:
        """Room on the devices of one stage, where most have so much."""
        del stage
        return capacity_bytes

    def placement(self, num_stages: int) -> Placement:
        """Runs of layers that may stand on P stages.

        An engine without uneven stages cuts P stages of equal length.
        """
        if self.problem.override.cuts:
            return FixedCuts(self.tables.groups(self.problem.override.cuts))
        if self._cuts_of is not None:
            return FixedCuts(self._cuts_of(num_stages))
        if self.problem.engine.can.uneven_stages:
            return ANY_CUTS
        size = self.tables.num_layers
        length = -(-size // num_stages)
        return FixedCuts(tuple(min(s * length, size) for s in range(num_stages)))


def least_of(arrays: Iterable[NDArray[Number]]) -> NDArray[Number]:
    """Elementwise least of some arrays, at least one."""
    return reduce(np.minimum, arrays)
