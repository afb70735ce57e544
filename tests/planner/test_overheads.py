"""Overheads that come with Plimsoll."""

from __future__ import annotations

from plimsoll_planner.overheads import EMULATED, with_built_in
from plimsoll_planner.records.model_profile import DeviceKind
from tests.support.builders import an_offer, an_overhead


def test_an_emulated_device_comes_with_its_overhead() -> None:
    """Where nothing was calibrated for the product, the built-in one is added."""
    offer = an_offer(device_kind=DeviceKind.EMULATED, device_product="process")
    assert with_built_in((), (offer,)) == (EMULATED,)
    assert with_built_in((), (an_offer(),)) == ()


def test_what_people_calibrated_wins() -> None:
    """A given overhead of the same product is the only one."""
    offer = an_offer(device_kind=DeviceKind.EMULATED, device_product="process")
    own = an_overhead(key=EMULATED.key, num_observations=3)
    assert with_built_in((own,), (offer,)) == (own,)
