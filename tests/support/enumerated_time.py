"""Seconds of plans of a small problem, pass by pass, for the enumerator.

In: a mesh, cuts, one option for each stage. Out: the walked step.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from plimsoll_planner.records.offer import Link, Offer
from tests.support.enumerated_carried import crossing
from tests.support.enumerated_costs import Costs, Mesh
from tests.support.enumerated_host import host_s
from tests.support.enumerated_sharding import (
    NONE,
    exchanged,
    exchanged_in_passes,
    stage_parts,
)


@dataclass(frozen=True)
class Option:
    """One stage with one recompute set, one level of sharding, one home and one cap."""

    peak: int
    extra_s: float
    """Added to each backward pass."""
    forward_s: float
    """Added to each forward pass."""
    closing_s: float
    """After the last backward pass."""
    cap: int
    """Micro-batches in flight."""
    offloads: bool = False
    """Some layer is not kept, but offloaded or recomputed from the host."""
    on_host: bool = False
    """The optimizer is."""


class Clock(Costs):
    """Seconds of plans."""

    @cached_property
    def timed(self) -> Costs:
        """Numbers for the bound of the seconds."""
        return Costs(self.problem, self.which_s)

    def link(self, mesh: Mesh, one: int, other: int) -> Link | None:
        """Link between two ranks."""
        offer = self.problem.offers[mesh.offer]
        pod = pod_size(offer, mesh)
        if one // pod == other // pod:
            return offer.link_in_node
        return offer.link_between_nodes

    def hop_s(self, mesh: Mesh, stage: int, layer: int) -> float:
        """Seconds of one boundary from a stage to the next.

        The slowest replica: between pods where any replica's ranks lie in two.
        """
        links = [
            (
                self.link(
                    mesh,
                    mesh.rank(stage, replica),
                    mesh.rank(stage + 1, replica),
                ),
                is_split,
            )
            for replica in range(mesh.replicas)
            for is_split in [self.is_split(mesh, stage, replica)]
        ]
        chosen = next((link for link, split in links if split), links[0][0])
        sent = self.amount(mesh, self.costs.boundary, layer, self.which_s)
        values = self.values_at(mesh.samples, self.which_s)
        sent += crossing(values, layer + 1, gradients=self.which_s == "lower")
        return over(chosen, sent)

    def is_split(self, mesh: Mesh, stage: int, replica: int) -> bool:
        """Whether a replica's two ranks lie in two pods."""
        pod = pod_size(self.problem.offers[mesh.offer], mesh)
        here, behind = mesh.rank(stage, replica), mesh.rank(stage + 1, replica)
        return any(
            (here + part) // pod != (behind + part) // pod
            for part in range(mesh.tensor)
        )

    def closing_s(
        self,
        mesh: Mesh,
        stage: int,
        run: tuple[int, int],
        *,
        level: str,
        on_host: bool,
    ) -> float:
        """Seconds of exchanging gradients and stepping the optimizer.

        The replicas may split state, which may be on the host.
        """
        step = sum(self.step_s(mesh, layer) for layer in range(*run))
        is_split = level != NONE and self.which_s != "upper"
        parts_of_step = mesh.replicas if is_split else 1
        step /= parts_of_step
        if on_host:
            own = stage_parts(self.timed, mesh, run, level=level).own
            step = host_s(self, mesh, run, own, parts_of_step)
        step += sum(self.messages_s(mesh, "step", layer) for layer in range(*run))
        return step + self.all_reduce_s(mesh, stage, *exchanged(self, mesh, run, level))

    def passes_s(
        self, mesh: Mesh, stage: int, run: tuple[int, int], level: str
    ) -> tuple[float, float]:
        """Seconds of what replicas exchange in a forward and in a backward pass."""
        forward, backward = exchanged_in_passes(self, mesh, run, level)
        return (
            self.all_reduce_s(mesh, stage, *forward),
            self.all_reduce_s(mesh, stage, *backward),
        )

    def all_reduce_s(
        self, mesh: Mesh, stage: int, num_bytes: int, num_layers: int
    ) -> float:
        """Seconds of all-reduces of so many layers among the replicas of a stage."""
        if mesh.replicas == 1:
            return 0.0
        ranks = [mesh.rank(stage, replica) for replica in (0, mesh.replicas - 1)]
        link = self.link(mesh, *ranks)
        part = over(link, num_bytes / mesh.replicas)
        if link is not None:
            part += (num_layers - 1) * link.latency_s
        return 2 * (mesh.replicas - 1) * part

    def walk_s(
        self, mesh: Mesh, cuts: tuple[int, ...], options: Sequence[Option]
    ) -> float:
        """Seconds of a step: ops in order, each after its input.

        Where ranks share cores it is no shorter than all work over all cores.
        """
        runs = list(itertools.pairwise(cuts))
        forward = [
            sum(self.pass_s(mesh, "forward", at) for at in range(*r)) + one.forward_s
            for r, one in zip(runs, options, strict=True)
        ]
        backward = [
            sum(self.pass_s(mesh, "backward", at) for at in range(*r)) + one.extra_s
            for r, one in zip(runs, options, strict=True)
        ]
        ends: dict[tuple[str, int, int], float] = {}
        orders = [one_f_one_b(one.cap, mesh.count) for one in options]
        clocks = [0.0] * mesh.stages
        while any(orders):
            for stage, order in enumerate(orders):
                while order:
                    kind, number = order[0]
                    needs, delay = self.needed(mesh, cuts, kind, stage, number)
                    if needs is not None and needs not in ends:
                        break
                    arrival = 0.0 if needs is None else ends[needs] + delay
                    taken = (forward if kind == "F" else backward)[stage]
                    clocks[stage] = max(clocks[stage], arrival) + taken
                    ends[kind, stage, number] = clocks[stage]
                    order.pop(0)
        alone_s = max(
            clock + one.closing_s for clock, one in zip(clocks, options, strict=True)
        )
        passes_s = mesh.count * (sum(forward) + sum(backward))
        closing_s = sum(one.closing_s for one in options)
        return max(alone_s, self.crowded_s(mesh, cuts, passes_s + closing_s))

    def crowded_s(self, mesh: Mesh, cuts: tuple[int, ...], passes_s: float) -> float:
        """Seconds of all work over the cores of all nodes; 0 where each rank has one.

        A message holds a core where it is sent and where it is received; outputs and
        gradients are sent.
        """
        offer = self.problem.offers[mesh.offer]
        cores, pod = offer.concurrent_devices_per_node, pod_size(offer, mesh)
        pods_on_node = offer.devices_per_node // pod
        if cores is None or min(pods_on_node * pod, mesh.gpus) <= cores:
            return 0.0
        nodes = -(-(mesh.gpus // pod) // pods_on_node)
        hops_s = sum(
            self.hop_s(mesh, stage, cuts[stage + 1] - 1)
            for stage in range(mesh.stages - 1)
        )
        work_s = mesh.width * (passes_s + 4 * mesh.count * hops_s)
        return offer.crowded_slowdown * work_s / (cores * nodes)

    def needed(
        self, mesh: Mesh, cuts: tuple[int, ...], kind: str, stage: int, number: int
    ) -> tuple[tuple[str, int, int] | None, float]:
        """Operation that an operation waits for, and the link's seconds."""
        if kind == "F":
            if stage == 0:
                return None, 0.0
            return (
                ("F", stage - 1, number),
                self.hop_s(mesh, stage - 1, cuts[stage] - 1),
            )
        if stage == mesh.stages - 1:
            return ("F", stage, number), 0.0
        return (
            ("B", stage + 1, number),
            self.hop_s(mesh, stage, cuts[stage + 1] - 1),
        )


def one_f_one_b(cap: int, count: int) -> list[tuple[str, int]]:
    """List the operations of a stage that holds so many micro-batches at most."""
    order = [("F", number) for number in range(cap)]
    for number in range(count):
        order.append(("B", number))
        if number + cap < count:
            order.append(("F", number + cap))
    return order


def pod_size(offer: Offer, mesh: Mesh) -> int:
    """Largest divisor of G that a node holds, of whole tensor groups."""
    sizes = range(1, min(mesh.gpus, offer.devices_per_node) + 1)
    return max(s for s in sizes if mesh.gpus % s == 0 and s % mesh.tensor == 0)


def over(link: Link | None, num_bytes: float) -> float:
    """Seconds over a link; an unknown one takes none."""
    if link is None:
        return 0.0
    return link.latency_s + num_bytes / link.bandwidth_bytes_per_s
