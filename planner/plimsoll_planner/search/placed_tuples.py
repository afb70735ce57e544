"""Tuples of a graph whose operators are placed one by one, and what becomes of each.

In: a problem whose engine places operators, and a count of devices. Out: a
`PlacedTuple` for each offer, each number K of devices of a replica that divides the
count, and each micro-batch b that a graph was profiled with: D * b * M = B. Called by
`placed_answer`.

    fits         the exact peaks of a placement do
    fails        a bound says that no placement does
    undecided    none was found, which proves nothing
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll_planner.engines import GRAPH_MICRO_BATCHES
from plimsoll_planner.errors import CannotPlanError, InvalidFieldError
from plimsoll_planner.graph.place import most_devices, place
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.overhead.allowance import (
    Allowance,
    allowance,
    num_communicators,
    overhead_for,
)
from plimsoll_planner.records.certificate import OPEN_RULES, Rule
from plimsoll_planner.records.graph_profile import GraphProfile, ProfiledGraph
from plimsoll_planner.records.interval import SecondsInterval, Verdict
from plimsoll_planner.records.offer import Link, Offer
from plimsoll_planner.records.placement_plan import PlacementPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Mesh, divisors
from plimsoll_planner.timing.topology import Topology, largest_pod, topology

STEP_ERROR = 0.5
"""Relative, of the seconds of a step: operators were measured one by one, and links are
taken to be never busy."""
NO_LINK = Link(bandwidth_bytes_per_s=1e15)
"""Of an offer that states none: sends take no time, as in a pipeline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedTuple:
    """One tuple of a count, and what became of it."""

    offer: int
    """Place among the offers of the problem."""
    mesh: Mesh
    """K devices as stages, D replicas."""
    micro_batch: int
    """b."""
    num_micro_batches: int
    """M; 0 if the batch does not divide."""
    allowed: Allowance
    topology: Topology
    rule: Rule
    placement: PlacementPlan | None = None
    """Also one that does not fit; None where nothing was placed."""
    step: SecondsInterval | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether a placement fits the memory."""
        if self.rule is Rule.PLACED:
            return Verdict.FITS
        return Verdict.UNDECIDED if self.rule in OPEN_RULES else Verdict.FAILS

    @property
    def least_bytes(self) -> int:
        """Of a device, that no placement can be below; 0 where nothing was placed."""
        if self.placement is None:
            return 0
        return self.allowed.device(Bound.LOWER, self.placement.bounds.peak_bytes)


class Placer:
    """Places the graphs of one problem; the same question is asked once."""

    def __init__(self, problem: Problem) -> None:
        """Look for graphs.

        Raises:
            CannotPlanError: there are none.
        """
        require_graphs(problem)
        self.problem = problem
        self.num_placed = 0
        self._left = problem.limits.max_tuples
        """Tuples that may still be judged; None: all."""
        self._known: dict[tuple[int, int, int, Link], PlacementPlan | None] = {}

    def tuples(self, num_gpus: int) -> Iterator[PlacedTuple]:
        """Yield every tuple of a count; at least one."""
        meshes = [mesh for mesh in self.meshes(num_gpus) if self.allows(mesh)]
        for mesh in meshes:
            for offer in range(len(self.problem.offers)):
                yield from self.of_mesh(offer, mesh)
        if not meshes:
            outside = Mesh(pipeline=num_gpus)
            yield self.failed(0, outside, 1, 0, Rule.OUTSIDE_LIMITS)

    def meshes(self, num_gpus: int) -> Iterator[Mesh]:
        """Yield K x D of a count."""
        for devices in divisors(num_gpus):
            yield Mesh(pipeline=devices, data=num_gpus // devices)

    def allows(self, mesh: Mesh) -> bool:
        """Whether limits and override leave room for a mesh."""
        limits, fixed = self.problem.limits, self.problem.override
        return (
            mesh.is_within(limits.pipeline_degrees, limits.data_degrees)
            and fixed.num_gpus in {None, mesh.num_gpus}
            and fixed.num_stages in {None, mesh.pipeline}
            and fixed.data_degree in {None, mesh.data}
        )

    def of_mesh(self, offer: int, mesh: Mesh) -> Iterator[PlacedTuple]:
        """Yield the tuples of one mesh on one offer."""
        of_replica, rest = divmod(self.problem.global_batch_size, mesh.data)
        graphs = self.graphs()
        fitting = [g for g in graphs if not rest and of_replica % g.micro_batch == 0]
        if not fitting:
            b = graphs[0].micro_batch
            yield self.failed(offer, mesh, b, 0, Rule.BATCH_DOES_NOT_DIVIDE)
        for one in fitting:
            yield self.judged(offer, mesh, one, of_replica // one.micro_batch)

    def graphs(self) -> list[ProfiledGraph]:
        """Graphs of micro-batches that limits and override allow.

        Raises:
            CannotPlanError: there is none.
        """
        fixed, most = self.problem.override.micro_batch, self.problem.limits
        found = [
            one
            for one in self.problem.profile.graphs
            if fixed in {None, one.micro_batch}
            and one.micro_batch <= (most.max_micro_batch or one.micro_batch)
        ]
        if not found:
            known = ", ".join(str(g.micro_batch) for g in self.problem.profile.graphs)
            raise CannotPlanError(
                f"graphs were profiled of micro-batches of {known} samples, and "
                "`override.micro_batch` or limits.max_micro_batch leave none of them"
            )
        return found

    def failed(
        self, offer: int, mesh: Mesh, micro_batch: int, count: int, rule: Rule
    ) -> PlacedTuple:
        """A tuple that a rule decides at sight."""
        return PlacedTuple(
            offer=offer,
            mesh=mesh,
            micro_batch=micro_batch,
            num_micro_batches=count,
            allowed=self.allowance(offer, mesh, micro_batch),
            topology=topology(self.problem.offers[offer], mesh),
            rule=rule,
        )

    def judged(
        self, offer: int, mesh: Mesh, one: ProfiledGraph, count: int
    ) -> PlacedTuple:
        """A tuple whose graph is placed."""
        if self._left == 0:
            return self.failed(offer, mesh, one.micro_batch, count, Rule.NOT_SEARCHED)
        if self._left is not None:
            self._left -= 1
        machine = self.problem.offers[offer]
        allowed = self.allowance(offer, mesh, one.micro_batch)
        where, available = topology(machine, mesh), machine.nodes_available
        if available is not None and where.num_nodes > available:
            return self.failed(offer, mesh, one.micro_batch, count, Rule.POD_SHAPE)
        capacity = allowed.tensor_capacity(Bound.UPPER)
        link = link_of(machine, mesh)
        # Where nothing is left for tensors, the placement says what would be needed.
        placement = self.placed(one, mesh.pipeline, max(capacity, 1), link)
        rule = Rule.NOT_PLACED
        if placement is not None:
            if placement.verdict is Verdict.FITS and capacity > 0:
                rule = Rule.PLACED
            elif placement.bounds.peak_bytes > allowed.tensor_capacity(Bound.LOWER):
                rule = Rule.PLACEMENT_BOUND
        return PlacedTuple(
            offer=offer,
            mesh=mesh,
            micro_batch=one.micro_batch,
            num_micro_batches=count,
            allowed=allowed,
            topology=where,
            rule=rule,
            placement=placement,
            step=None
            if placement is None
            else step_of(placement, one.graph, count, where),
        )

    def placed(
        self, one: ProfiledGraph, num_devices: int, capacity_bytes: int, link: Link
    ) -> PlacementPlan | None:
        """A placement; None: there are more devices than groups, or than are tried.

        More than groups would leave a device without work, which a smaller count does
        without.
        """
        key = one.micro_batch, num_devices, capacity_bytes, link
        if key not in self._known:
            self._known[key] = None
            if num_devices <= most_placed(one.graph):
                self.num_placed += 1
                with_name = f"a graph of {one.graph.num_nodes} operators"
                try:
                    self._known[key] = place(
                        one.graph,
                        num_devices,
                        capacity_bytes=capacity_bytes,
                        link=link,
                    )
                except InvalidFieldError as error:
                    raise CannotPlanError(f"{with_name}: {error}") from error
        return self._known[key]

    def allowance(self, offer: int, mesh: Mesh, micro_batch: int) -> Allowance:
        """Bytes of a device besides tensors."""
        problem, machine = self.problem, self.problem.offers[offer]
        return allowance(
            machine,
            problem.limits,
            overhead_for(machine, problem.overheads, problem.profile.fingerprint),
            problem.engine,
            micro_batch=micro_batch,
            communicators=num_communicators(mesh, 0),
        )


def most_placed(graph: GraphProfile) -> int:
    """Devices that a graph is placed on at the most: one for each group."""
    return min(graph.num_groups, most_devices(graph))


def require_graphs(problem: Problem) -> None:
    """Refuse a profile without graphs.

    Raises:
        CannotPlanError: see above.
    """
    if not problem.profile.graphs:
        raise CannotPlanError(
            f"engine {problem.engine.engine} places operators, and the profile has no "
            "graph of them: profile with --graph-micro-batches "
            f"{','.join(map(str, GRAPH_MICRO_BATCHES))}, or plan with engine plimsoll"
        )


def link_of(offer: Offer, mesh: Mesh) -> Link:
    """Link between two devices of a replica: the slowest that there may be."""
    pod = largest_pod(mesh.num_gpus, offer.devices_per_node)
    is_inside = mesh.num_gpus <= pod
    link = offer.link_in_node if is_inside else offer.link_between_nodes
    return link or NO_LINK


def step_of(
    placement: PlacementPlan, graph: GraphProfile, count: int, where: Topology
) -> SecondsInterval:
    """Seconds of a step: its micro-batches, and gradients added up over replicas."""
    one_s = placement.makespan_s
    if where.concurrent_per_node is not None:
        work_s = sum(filter(None, graph.nodes.seconds))
        at_once = where.concurrent_per_node / where.ranks_per_node
        shared_s = work_s / where.mesh.pipeline / at_once * where.crowded_slowdown
        one_s = max(one_s, shared_s if at_once < 1 else 0.0)
    data = where.mesh.data
    gradient_bytes = max(peak.gradient_bytes for peak in placement.peaks)
    exchanged = 2 * (data - 1) / data * gradient_bytes
    exchange_s = max(one.seconds(exchanged) for one in where.exchanges)
    expected_s = count * one_s + (exchange_s if data > 1 else 0.0)
    return SecondsInterval(
        lower_s=min(count * placement.bounds.makespan_s, expected_s) / (1 + STEP_ERROR),
        expected_s=expected_s,
        upper_s=expected_s * (1 + STEP_ERROR),
    )
