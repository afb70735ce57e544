"""Pods, nodes and links of a mesh."""

from __future__ import annotations

import pytest

from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.timing.ticks import down, up
from plimsoll_planner.timing.topology import Hop, hop, largest_pod, topology
from tests.support.builders import an_offer
from tests.support.gradients import exchange_s

INSIDE = Link(bandwidth_bytes_per_s=1024.0, latency_s=0.5)
BETWEEN = Link(bandwidth_bytes_per_s=64.0, latency_s=2.0)
OFFER = an_offer(devices_per_node=4, link_in_node=INSIDE, link_between_nodes=BETWEEN)


@pytest.mark.parametrize(
    ("num_gpus", "on_node", "pod"),
    [(4, 4, 4), (6, 4, 3), (7, 4, 1), (3, 8, 3), (8, 4, 4)],
)
def test_a_pod_is_the_largest_divisor_that_a_node_holds(
    num_gpus: int, on_node: int, pod: int
) -> None:
    """Equal pods, and none larger than a node."""
    assert largest_pod(num_gpus, on_node) == pod


def test_links_follow_the_ranks() -> None:
    """P = 3, D = 2 on nodes of 4: two pods of 3, ranks 0 1 2 | 3 4 5.

    Stage 0 is ranks 0 and 1, stage 1 is 2 and 3, stage 2 is 4 and 5: from stage 0 to 1
    replica 1 crosses the pods, from 1 to 2 replica 0 does; stage 1's group crosses too.
    """
    placed = topology(OFFER, Mesh(pipeline=3, data=2))
    assert (placed.gpus_per_pod, placed.num_pods, placed.num_nodes) == (3, 2, 2)
    assert placed.hops == (hop(BETWEEN), hop(BETWEEN))
    assert placed.exchanges == (hop(INSIDE), hop(BETWEEN), hop(INSIDE))


def test_small_pods_share_a_node() -> None:
    """Seven single-device pods need two nodes of four."""
    placed = topology(OFFER, Mesh(pipeline=7))
    assert (placed.gpus_per_pod, placed.pods_per_node, placed.num_nodes) == (1, 4, 2)
    assert (
        placed.ranks_per_node,
        topology(OFFER, Mesh(pipeline=2)).ranks_per_node,
    ) == (
        4,
        2,
    )


def test_seconds_of_a_link() -> None:
    """Latency and bytes over bandwidth; an unknown link takes no time."""
    assert hop(INSIDE).seconds(512) == 1.0
    assert hop(None) == Hop()
    assert hop(None).seconds(10**12) == 0.0


def test_a_ring_moves_each_part_twice() -> None:
    """D = 4: 2 * 3 steps of a quarter of the bytes each, 0.5 + 64 / 1024 s a step."""
    placed = topology(OFFER, Mesh(pipeline=1, data=4))
    assert exchange_s(placed, 0, 256, 1) == 6 * (0.5 + 64 / 1024)
    assert exchange_s(topology(OFFER, Mesh(pipeline=4)), 0, 256, 1) == 0.0


def test_every_exchange_pays_the_latency() -> None:
    """Three layers' gradients: as many bytes, three times the latency."""
    placed = topology(OFFER, Mesh(pipeline=1, data=4))
    assert exchange_s(placed, 0, 256, 3) == 6 * (3 * 0.5 + 64 / 1024)


def test_devices_compute_on_their_own_unless_they_share() -> None:
    """Shared cores copy too, so that they matter even where each device has one."""
    assert topology(OFFER, Mesh(pipeline=1)).concurrent_per_node is None
    full = an_offer(devices_per_node=4, concurrent_devices_per_node=4)
    assert topology(full, Mesh(pipeline=2, data=2)).concurrent_per_node == 4
    shared = an_offer(devices_per_node=4, concurrent_devices_per_node=2)
    assert topology(shared, Mesh(pipeline=2, data=2)).concurrent_per_node == 2


def test_ticks_bound_from_both_sides() -> None:
    """A third of a second is no whole number of ticks; sums of ticks are exact."""
    assert down(1 / 3) < 1 / 3 < up(1 / 3)
    assert up(0.25) == down(0.25) == 0.25
    tick = up(1e-12)
    assert (1000.0 + tick) - 1000.0 == tick
