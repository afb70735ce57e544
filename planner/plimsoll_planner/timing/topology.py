"""Pods, nodes and links of a plan.

In: an offer and a mesh. Out: a `Topology`. Called by the search, for bounds, walks, the
question whether there are enough nodes, and when a plan is written down.

Pods are equal and filled in the order of ranks (`Mesh`); a pod has as many devices as
the largest divisor of G that a node holds and that T divides, so that it has whole
tensor groups. Two ranks of one pod talk over the link inside a node, all others over
the link between nodes. A link that the offer does not state takes no time. All parts t
of a tensor group are in one pod, so links between stages and among replicas are those
of any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from plimsoll_planner.records.offer import Link, Offer
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.timing.ticks import up


@dataclass(frozen=True, kw_only=True, slots=True)
class Hop:
    """Seconds over a link: latency + bytes * seconds_per_byte."""

    latency_s: float = 0.0
    s_per_byte: float = 0.0

    def seconds(self, num_bytes: float, num_messages: int = 1) -> float:
        """Seconds that bytes take in some messages, in whole ticks."""
        return up(num_messages * self.latency_s + num_bytes * self.s_per_byte)


def hop(link: Link | None) -> Hop:
    """Times of a link."""
    if link is None:
        return Hop()
    return Hop(latency_s=link.latency_s, s_per_byte=1 / link.bandwidth_bytes_per_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """Machines on which the ranks of a mesh stand."""

    mesh: Mesh
    gpus_per_pod: int
    pods_per_node: int
    num_nodes: int
    hops: tuple[Hop, ...]
    """Between stage s and s + 1, for s from 0 to P - 2; the slowest replica's."""
    exchanges: tuple[Hop, ...]
    """Inside the data-parallel group of each stage; the slowest link of the group."""
    host: Hop
    """Between a device and the memory of its machine."""
    is_host_link_shared: bool
    """Whether all ranks of a node share it."""
    concurrent_per_node: int | None
    """How many ranks of a node compute at the same time; None: all, on their own."""
    crowded_slowdown: float = 1.0
    """Of what begins while more ranks of a node have work."""

    @property
    def ranks_per_node(self) -> int:
        """Ranks on a node that is full."""
        return min(self.pods_per_node * self.gpus_per_pod, self.mesh.num_gpus)

    @property
    def ranks_per_host_link(self) -> int:
        """Ranks that share a link to the memory of their machine."""
        return self.ranks_per_node if self.is_host_link_shared else 1

    @property
    def num_pods(self) -> int:
        """Pods of equal size."""
        return self.mesh.num_gpus // self.gpus_per_pod


def largest_pod(num_gpus: int, devices_per_node: int, tensor_degree: int = 1) -> int:
    """Largest divisor of a number of devices that a node holds, of whole tensor groups.

    Groups larger than a node are in no pod; the pods then hold parts of them.
    """
    whole = tensor_degree if tensor_degree <= devices_per_node else 1
    most = min(num_gpus, devices_per_node)
    sizes = range(most - most % whole, 0, -whole)
    return next(size for size in sizes if num_gpus % size == 0)


def topology(offer: Offer, mesh: Mesh) -> Topology:
    """Ranks of a mesh, placed on machines of one offer."""
    num_gpus = mesh.num_gpus
    per_pod = largest_pod(num_gpus, offer.devices_per_node, mesh.tensor)
    pods_per_node = offer.devices_per_node // per_pod
    inside, between = hop(offer.link_in_node), hop(offer.link_between_nodes)

    pods = [[rank // per_pod for rank in mesh.ranks(s)] for s in range(mesh.pipeline)]
    hops = tuple(
        inside if here == behind else between for here, behind in pairwise(pods)
    )
    exchanges = tuple(inside if pod[0] == pod[-1] else between for pod in pods)
    return Topology(
        mesh=mesh,
        gpus_per_pod=per_pod,
        pods_per_node=pods_per_node,
        num_nodes=offer.num_nodes(num_gpus, per_pod),
        hops=hops,
        exchanges=exchanges,
        host=hop(offer.link_to_host),
        is_host_link_shared=offer.host_link_shared,
        concurrent_per_node=offer.concurrent_devices_per_node,
        crowded_slowdown=offer.crowded_slowdown,
    )
