"""Bounds that no schedule changes."""

from __future__ import annotations

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.timing.chain_seconds import chain_seconds
from plimsoll_planner.timing.stage_runs import shared_bound
from plimsoll_planner.timing.topology import topology
from tests.support.builders import an_offer
from tests.support.chains import Layer, chain_profile


def test_shared_cores_bound_all_work() -> None:
    """Two replicas of 8 micro-batches of 12 s on 3 cores; without a limit no bound."""
    profile = chain_profile([Layer()] * 4)
    offer = an_offer(concurrent_devices_per_node=3)
    seconds = chain_seconds(profile, offer, Bound.EXPECTED, 1)
    mesh = Mesh(pipeline=2, data=2)
    assert shared_bound(seconds, topology(offer, mesh), 8) == 2 * 8 * 12 / 3
    assert shared_bound(seconds, topology(an_offer(), mesh), 8) == 0.0
