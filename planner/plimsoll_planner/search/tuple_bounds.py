"""Lower bounds of single tuples (offer, P, D, b): memory at any speed, time under it.

In: a candidate. Out: numbers and cuts. The base of `TupleSearch`, which adds plans.

    corner       least over all cuts and recompute sets of the largest rank's peak
    least_bound  least step bound over all plans whose every peak is within a capacity
    least_period least largest load of a stage, for all data degrees at once
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import numpy as np

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES, Bound, Flags, Ints
from plimsoll_planner.memory.device_bytes import (
    Allowance,
    allowance,
    num_communicators,
    overhead_for,
)
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.recompute_labels import Floats
from plimsoll_planner.memory.stage_peaks import least_peaks, least_seconds
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.search.alike import first_alike
from plimsoll_planner.search.cost_tables import MOST_GROUPS, CostTables
from plimsoll_planner.search.numbers import FITTING, HOPED, Numbers
from plimsoll_planner.search.partition import (
    Partition,
    least_corner,
    least_largest,
)
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.timing.stage_runs import (
    Gradients,
    StageBound,
    shared_bound,
    stage_runs,
)
from plimsoll_planner.timing.topology import Topology, topology

CutsOf = Callable[[int], tuple[int, ...]]
"""From P to the first layer of each stage."""
MOST_BOUNDS = 64
"""Tuples whose step bounds are kept."""
MOST_SECONDS_BYTES = 2**28
"""Matrices of added seconds that are kept."""


class TupleBounds:
    """Bounds of single tuples; keeps what several of them share."""

    def __init__(self, problem: Problem, cuts_of: CutsOf | None = None) -> None:
        """Prepare the tables; raises what `CostTables` raises.

        Args:
            problem: the question.
            cuts_of: a rule that cuts P stages in one way only; None: all cuts.
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
        self._allowances: dict[tuple[int, int, tuple[int, int]], Allowance] = {}
        tied = problem.profile.tied
        self._num_ties = len({tie.layers for tie in tied if tie.gradient_bytes})
        self._corners: dict[tuple[object, ...], list[Ints]] = {}
        self._least_s: dict[tuple[object, ...], Floats] = {}
        self._bounds: dict[tuple[object, ...], list[StageBound]] = {}
        self._periods: dict[tuple[object, ...], float] = {}
        self._placed: dict[tuple[int, Mesh], Topology] = {}
        self._fits: dict[tuple[Candidate, bool], bool] = {}
        self._alike = first_alike(problem.offers)

    # What surrounds a tuple.

    def alike(self, candidate: Candidate) -> Candidate:
        """Return the tuple of the first offer with such machines, at any price."""
        offer = self._alike[candidate.offer]
        return (
            candidate if offer == candidate.offer else replace(candidate, offer=offer)
        )

    def allowance(self, candidate: Candidate) -> Allowance:
        """Return what a rank has besides tensors."""
        communicators = num_communicators(candidate.mesh, self._num_ties)
        offer_alike = self._alike[candidate.offer]
        key = (offer_alike, candidate.micro_batch, communicators)
        if key not in self._allowances:
            problem, offer = self.problem, self.problem.offers[candidate.offer]
            self._allowances[key] = allowance(
                offer,
                problem.limits,
                overhead_for(offer, problem.overheads, problem.profile.fingerprint),
                problem.engine,
                micro_batch=candidate.micro_batch,
                communicators=communicators,
            )
        return self._allowances[key]

    def placed(self, candidate: Candidate) -> Topology:
        """Return where the ranks stand."""
        key = (self._alike[candidate.offer], candidate.mesh)
        if key not in self._placed:
            self._placed[key] = topology(self.problem.offers[key[0]], key[1])
        return self._placed[key]

    def price_per_hour(self, candidate: Candidate) -> Decimal | None:
        """Return the price of all nodes, None where the offer states none."""
        price = self.problem.offers[candidate.offer].price_per_node_hour
        return None if price is None else price * self.placed(candidate).num_nodes

    def stage_flow(self, candidate: Candidate, stage: int) -> Flow:
        """Flow through one stage."""
        return self.flow(candidate, candidate.num_stages - stage)

    def flow(self, candidate: Candidate, num_left: int) -> Flow:
        """Flow through a stage with so many stages from it to the last."""
        count = candidate.num_micro_batches
        return Flow(
            in_flight=candidate.schedule.in_flight(num_left, count),
            num_micro_batches=candidate.num_micro_batches,
            micro_batch=candidate.micro_batch,
            data_degree=candidate.mesh.data,
        )

    def fixed_cuts(self, num_stages: int) -> tuple[int, ...] | None:
        """Return the only cuts that there are, where a person or the engine fixes them.

        An engine without uneven stages cuts P stages of equal length.
        """
        if self.problem.override.cuts:
            return self.tables.groups(self.problem.override.cuts)
        if self._cuts_of is not None:
            return self._cuts_of(num_stages)
        if self.problem.engine.can.uneven_stages:
            return None
        length = -(-self.tables.num_layers // num_stages)
        return tuple(min(s * length, self.tables.num_layers) for s in range(num_stages))

    def possible(self, num_stages: int, stage: int) -> Flags | None:
        """Return [A, B]: which stages fixed cuts allow; None: all."""
        cuts = self.fixed_cuts(num_stages)
        if cuts is None:
            return None
        size = self.tables.num_layers
        allowed = np.zeros((size, size + 1), dtype=np.bool_)
        ends = (*cuts[1:], size)
        if cuts[stage] < size:
            allowed[cuts[stage], ends[stage]] = True
        return allowed

    # Memory at any speed.

    def simple_bounds(self, candidate: Candidate, bound: Bound) -> tuple[int, int]:
        """Return two lower bounds of `corner`, in tensor bytes.

        One is all state, shared parts once, spread evenly over the stages; the other
        is the layer that is largest alone, with one micro-batch in flight.
        """
        chain = self.tables.bytes(bound, candidate.micro_batch)
        shared = sum((len(tie.members) - 1) * tie.state for tie in chain.ties)
        state = int(chain.state.sum()) - shared
        passes = np.maximum(chain.forward_transient, chain.backward_transient)
        least = np.where(chain.allowed, passes, LARGEST_BYTES).min(axis=0)
        return -(-state // candidate.num_stages), int((chain.state + least).max())

    def fits(self, candidate: Candidate, *, merge: bool = False) -> bool:
        """Whether some plan's upper bytes are within the capacity.

        Args:
            candidate: the tuple.
            merge: whether that is not excluded; see `Numbers`.
        """
        key = (self.alike(candidate), merge)
        if key not in self._fits:
            self._fits[key] = self._finds_room(*key)
        return self._fits[key]

    def _finds_room(self, candidate: Candidate, merge: bool) -> bool:
        """What `fits` keeps."""
        capacity = self.allowance(candidate).tensor_capacity(Bound.UPPER)
        if max(self.simple_bounds(candidate, Bound.UPPER)) > capacity:
            return False
        return self.corner(candidate, Bound.UPPER, merge=merge) <= capacity

    def corner(self, candidate: Candidate, bound: Bound, *, merge: bool = False) -> int:
        """Least peak in tensor bytes; `LARGEST_BYTES` where none exists.

        Args:
            candidate: the tuple.
            bound: of the bytes; for the lower one pruned options are always merged.
            merge: see `Numbers`.
        """
        if self.tables.is_grouped and (merge or bound is Bound.LOWER):
            return max(self.simple_bounds(candidate, bound))
        labels = self.tables.corner_labels(bound, candidate.micro_batch, merge=False)
        merge = (merge or bound is Bound.LOWER) and bool(labels.pruned.any())
        return int(self.corners(candidate, bound, merge)[candidate.num_stages][0])

    def corners(self, candidate: Candidate, bound: Bound, merge: bool) -> list[Ints]:
        """Least peak of every suffix and number of stages."""
        fixed = self.fixed_cuts(candidate.num_stages) is not None
        most = min(
            self.tables.num_layers,
            self.problem.limits.max_gpus // candidate.mesh.ranks_per_stage,
        )
        if not self.problem.engine.can.fewer_micro_batches_than_stages:
            most = min(most, candidate.num_micro_batches)
        most = candidate.num_stages if fixed else max(most, candidate.num_stages)
        key = (
            *(bound, merge, candidate.micro_batch, candidate.num_micro_batches),
            replace(candidate.strategy, mesh=replace(candidate.mesh, pipeline=1)),
            *([candidate.num_stages] if fixed else []),
        )
        if key not in self._corners or len(self._corners[key]) <= candidate.num_stages:
            self._corners[key] = least_corner(
                lambda left: self.corner_peaks(candidate, bound, left, merge=merge),
                most,
            )
        return self._corners[key]

    def corner_peaks(
        self, candidate: Candidate, bound: Bound, left: int, *, merge: bool
    ) -> Ints:
        """[A, B]: least peaks of a stage with `left` stages from it to the last."""
        peaks = least_peaks(
            self.tables.stages(bound, candidate.micro_batch),
            self.tables.corner_labels(bound, candidate.micro_batch, merge=merge),
            self.flow(candidate, left),
        )
        allowed = self.possible(candidate.num_stages, candidate.num_stages - left)
        if allowed is not None:
            peaks = np.where(allowed, peaks, LARGEST_BYTES)
        return np.minimum(peaks, LARGEST_BYTES)

    # Time under a capacity.

    def bounds(self, candidate: Candidate, seconds_bound: Bound) -> list[StageBound]:
        """Step bounds of each stage, before recomputing."""
        b = candidate.micro_batch
        key = (
            *(self._alike[candidate.offer], candidate.strategy),
            *(b, seconds_bound),
        )
        if key not in self._bounds:
            if len(self._bounds) > MOST_BOUNDS:
                self._bounds.clear()
            bytes_of = self.tables.stages(seconds_bound, b)
            stages = stage_runs(
                self.tables.runs(candidate.offer, seconds_bound, b),
                self.tables.boundaries(seconds_bound, b),
                Gradients(
                    num_bytes=bytes_of.gradient, exchanges=bytes_of.num_exchanges
                ),
                self.placed(candidate),
            )
            self._bounds[key] = [
                candidate.schedule.stage_bound(
                    runs, stage, candidate.num_stages, candidate.num_micro_batches
                )
                for stage, runs in enumerate(stages)
            ]
        return self._bounds[key]

    def added_seconds(
        self,
        candidate: Candidate,
        stage: int,
        bounds: Numbers,
        capacity_bytes: int,
        flow: Flow | None = None,
    ) -> Floats:
        """[A, B]: least seconds that recomputing adds within a capacity."""
        flow = flow or self.stage_flow(candidate, stage)
        b = candidate.micro_batch
        key = (self.tables.clock(candidate.offer), bounds, capacity_bytes, flow)
        if key not in self._least_s:
            if sum(kept.nbytes for kept in self._least_s.values()) > MOST_SECONDS_BYTES:
                self._least_s.clear()
            self._least_s[key] = least_seconds(
                self.tables.stages(bounds.bytes, b),
                self.tables.labels(candidate.offer, *bounds, b),
                flow,
                capacity_bytes,
            )
        found = self._least_s[key]
        allowed = self.possible(candidate.num_stages, stage)
        return found if allowed is None else np.where(allowed, found, np.inf)

    def least_bound(
        self, candidate: Candidate, bounds: Numbers, capacity_bytes: int
    ) -> Partition | None:
        """Return the least step bound of the plans within a capacity, and its cuts.

        Args:
            candidate: the tuple.
            bounds: see `Numbers`.
            capacity_bytes: of tensors on a rank.
        """
        if capacity_bytes < 0:
            return None
        if self.tables.is_grouped and bounds.merge:
            return Partition(value=0.0, cuts=())
        found = least_largest(self.step_bounds(candidate, bounds, capacity_bytes))
        if found is None:
            return None
        least = self.shared_bound(candidate, bounds.seconds)
        return Partition(value=max(found.value, least), cuts=found.cuts)

    def step_bounds(
        self, candidate: Candidate, bounds: Numbers, capacity_bytes: int
    ) -> list[Floats]:
        """Step bound of every stage [A, B] with the quickest choice that fits."""
        count = candidate.num_micro_batches
        return [
            bound.step_s(
                count, self.added_seconds(candidate, stage, bounds, capacity_bytes)
            )
            for stage, bound in enumerate(self.bounds(candidate, bounds.seconds))
        ]

    def hoped(self, candidate: Candidate) -> Numbers:
        """`HOPED`, or its equal that is at hand where no plan was left out."""
        labels = self.tables.labels(candidate.offer, *FITTING, candidate.micro_batch)
        is_open = labels.pruned.any() or self.tables.is_grouped
        return HOPED if is_open else FITTING

    def shared_bound(self, candidate: Candidate, seconds_bound: Bound) -> float:
        """Return the bound that shared cores give; 0 where ranks share none."""
        chain = self.tables.seconds(
            candidate.offer, seconds_bound, candidate.micro_batch
        )
        count = candidate.num_micro_batches
        return shared_bound(chain, self.placed(candidate), count)

    def least_period(self, candidate: Candidate, bounds: Numbers = FITTING) -> float:
        """Lower bound of the largest load of a stage, recomputing included.

        It holds for every D at once: memory is relaxed to what all of them have, as few
        micro-batches in flight as P of them leave, their inputs alone, no copies of
        gradients, the fewest communicators.
        """
        if self.tables.is_grouped and bounds.merge:
            return 0.0
        b, stages = candidate.micro_batch, candidate.num_stages
        if candidate.num_micro_batches < stages:
            return 0.0
        alone = replace(
            candidate,
            strategy=replace(candidate.strategy, mesh=replace(candidate.mesh, data=1)),
        )
        key = (self._alike[candidate.offer], alone.strategy, b, bounds)
        if key not in self._periods:
            capacity = self.allowance(alone).tensor_capacity(Bound.UPPER)
            runs = self.tables.runs(candidate.offer, Bound.EXPECTED, b)
            load = runs.forward + runs.backward
            added = (
                self.added_seconds(
                    alone, stage, bounds, capacity, self.least_flow(alone, stage)
                )
                for stage in range(stages)
            )
            found = least_largest([load + added_s for added_s in added])
            self._periods[key] = np.inf if found is None else found.value
        return self._periods[key]

    def least_flow(self, candidate: Candidate, stage: int) -> Flow:
        """Flow through one stage with P micro-batches, k of which have inputs."""
        stages = candidate.num_stages
        in_flight = candidate.schedule.in_flight(stages - stage, stages)
        return Flow(
            in_flight=in_flight,
            num_micro_batches=in_flight,
            micro_batch=candidate.micro_batch,
            data_degree=candidate.mesh.data,
        )
