"""Seconds that layers add which are not kept, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import UNSPLIT, chain_bytes
from plimsoll_planner.records.engine import Way
from plimsoll_planner.records.offer import Link, Offer
from plimsoll_planner.timing.added_seconds import AddedSeconds, added_seconds
from plimsoll_planner.timing.chain_seconds import chain_seconds
from tests.support.builders import an_offer
from tests.support.chains import Activation, Layer, chain_profile

LAYER = Layer(
    away=Activation(on_host=100),
    again_away=Activation(on_host=20),
    forward_s=1.0,
    backward_s=2.0,
    recompute_s=1.0,
)
NOTHING = replace(LAYER, away=Activation(), again_away=Activation())
LINKED = an_offer(
    device_product="H200",
    devices_per_node=4,
    link_to_host=Link(bandwidth_bytes_per_s=20.0, latency_s=1.0),
)


def added(way: Way, bound: Bound, offer: Offer = LINKED) -> AddedSeconds:
    """Seconds of one layer with bytes on the host, and of one without."""
    profile = chain_profile([LAYER, NOTHING])
    return added_seconds(
        chain_seconds(profile, offer, bound, 1, UNSPLIT),
        chain_bytes(profile, bound, 1, UNSPLIT, way),
        offer,
        bound,
    )


@pytest.mark.parametrize(
    ("way", "forward", "backward"),
    [
        (Way.RECOMPUTED, [0.0, 0.0], [1.0, 1.0]),
        (Way.OFFLOADED, [6.0, 0.0], [6.0, 0.0]),
        (Way.RECOMPUTED_FROM_HOST, [2.0, 0.0], [3.0, 1.0]),
    ],
)
def test_copies_are_added_to_the_passes(
    way: Way, forward: list[float], backward: list[float]
) -> None:
    """1 s and 100 bytes, or 20, at 20 bytes a second; recomputing takes 1 s."""
    found = added(way, Bound.EXPECTED)
    assert found.forward.tolist() == forward
    assert found.backward.tolist() == backward
    assert found.both.tolist() == [
        sum(one) for one in zip(forward, backward, strict=True)
    ]


def test_the_lower_bound_overlaps_a_copy_with_its_pass() -> None:
    """6 s beside a forward pass of 1 s, and beside a backward pass of 2 s."""
    found = added(Way.OFFLOADED, Bound.LOWER)
    assert found.forward.tolist() == [5.0, 0.0]
    assert found.backward.tolist() == [4.0, 0.0]
    again = added(Way.RECOMPUTED_FROM_HOST, Bound.LOWER)
    assert again.forward.tolist() == [1.0, 0.0]
    assert again.backward.tolist() == [1.0, 1.0]
    assert again.in_forward == (0.0, 0.5)


def test_devices_of_a_node_may_share_the_link() -> None:
    """Four of them then take four times as long, but for the lower bound."""
    shared = replace(LINKED, host_link_shared=True)
    assert added(Way.OFFLOADED, Bound.UPPER, shared).forward.tolist() == [24.0, 0.0]
    assert added(Way.OFFLOADED, Bound.LOWER, shared).forward.tolist() == [5.0, 0.0]
