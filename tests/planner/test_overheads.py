"""Overheads that come with Plimsoll."""

from __future__ import annotations

from plimsoll_planner.memory.device_bytes import overhead_for
from plimsoll_planner.overheads import EMULATED, basis_text, with_built_in
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey
from plimsoll_planner.records.model_profile import DeviceKind
from tests.support.builders import a_fingerprint, a_plan, an_offer, an_overhead

OFFER = an_offer(device_kind=DeviceKind.EMULATED, device_product="process")


def calibrated(torch_version: str) -> DeviceOverhead:
    """Build what few ranks of an emulated device said."""
    key = OverheadKey(device_product="process", torch_version=torch_version)
    return an_overhead(key=key, num_observations=8)


def used(*given: DeviceOverhead) -> DeviceOverhead | None:
    """Return which overhead counts for a profile of torch 2.15.0+cpu."""
    fingerprint = a_fingerprint(torch_version="2.15.0+cpu", image="")
    return overhead_for(OFFER, with_built_in(given, (OFFER,)), fingerprint)


def test_an_emulated_device_comes_with_its_overhead() -> None:
    """The built-in one is added for its product, and for no other."""
    assert with_built_in((), (OFFER,)) == (EMULATED,)
    assert with_built_in((), (an_offer(),)) == ()


def test_what_was_calibrated_wins() -> None:
    """However few ranks are behind it; with the very same key it is the only one."""
    own = calibrated("2.15.0+cpu")
    assert used(own) is own
    same = calibrated("2.15")
    assert with_built_in((same,), (OFFER,)) == (same,)


def test_another_version_does_not_count() -> None:
    """What ranks of another torch held leaves the built-in overhead in place."""
    assert used(calibrated("2.14.1+cpu"), calibrated("2.16")) is EMULATED


def test_what_stands_behind_a_bound_is_told() -> None:
    """How much, and from how many ranks; or that it is an assumption."""
    plan = a_plan(fingerprint=a_fingerprint(torch_version="2.15.0+cpu"))
    assert basis_text(OFFER, (EMULATED,), plan) == (
        "beside tensors: up to 1024 B for each device, from 232 measured ranks of "
        "process on torch 2.15"
    )
    assert "from 8 measured ranks" in basis_text(OFFER, (calibrated("2.15"),), plan)
    assert basis_text(OFFER, (calibrated("2.14"),), plan) == (
        "beside tensors: assumed; process was never measured"
    )
