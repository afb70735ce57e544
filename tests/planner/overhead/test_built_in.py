"""Overheads that come with Plimsoll."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plimsoll_planner.overhead.allowance import overhead_for
from plimsoll_planner.overhead.built_in import (
    EMULATED,
    basis_text,
    widening_lines,
    with_built_in,
)
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey, SeenAt
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import HybridPlan, Phase, PhasePeak
from tests.support.builders import (
    a_fingerprint,
    a_peak,
    a_plan,
    a_stage,
    an_offer,
    an_overhead,
    bytes_between,
)
from tests.support.questions import a_device, a_question

OFFER = an_offer(device_kind=DeviceKind.EMULATED, device_product="process")


def calibrated(torch_version: str) -> DeviceOverhead:
    """Build the reports of few ranks of an emulated device."""
    key = OverheadKey(device_product="process", torch_version=torch_version)
    return an_overhead(key=key, num_observations=8)


def used(*given: DeviceOverhead) -> DeviceOverhead | None:
    """Overhead that counts for a profile of torch 2.15.0+cpu."""
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
    """Ranks of another torch leave the built-in overhead in place."""
    assert used(calibrated("2.14.1+cpu"), calibrated("2.16")) is EMULATED


def a_predicted_plan(**fields: Any) -> HybridPlan:
    """Build a plan of 2 x 2 devices that has a kilobyte beside its tensors."""
    device = bytes_between(0, 9216)
    tensors = bytes_between(0, 8192)
    peak = PhasePeak(
        phase=Phase.BACKWARD, allocated=tensors, reserved=tensors, device=device
    )
    stages = (
        a_stage(0, 2, (0, 1), peaks=(peak,)),
        a_stage(2, 4, (2, 3), peaks=(a_peak(),)),
    )
    fingerprint = a_fingerprint(torch_version="2.15.0+cpu")
    return a_plan(**({"fingerprint": fingerprint, "stages": stages} | fields))


def test_what_stands_behind_a_bound_is_told() -> None:
    """How much, from how many ranks of how many plans; or that it is an assumption."""
    plan = a_predicted_plan()
    assert basis_text(OFFER, (EMULATED,), plan) == (
        "beside tensors: up to 1024 B for each device, from 232 ranks of 72 plans "
        "measured on process with torch 2.15"
    )
    by_hand = an_overhead(key=EMULATED.key, num_observations=1)
    assert "from 1 rank measured on" in basis_text(OFFER, (by_hand,), plan)
    assert basis_text(OFFER, (calibrated("2.14"),), plan) == (
        "beside tensors: up to 1024 B for each device, assumed, for process was never "
        "measured"
    )


def test_a_bound_that_reaches_beyond_what_was_seen_says_so() -> None:
    """Ranks with two communicators say nothing of the three of a mesh."""
    places = [SeenAt(micro_batch=4, num_communicators=c) for c in (2, 3)]
    few, enough = (
        replace(calibrated("2.15"), seen=tuple(places[:number])) for number in (1, 2)
    )
    text = basis_text(OFFER, (few,), a_predicted_plan())
    assert text.endswith(
        "none of them with a micro-batch of 1 and 3 communicators or more"
    )
    assert "none of them" not in basis_text(OFFER, (enough,), a_predicted_plan())


def test_shortages_are_told_apart_from_measured_ranks() -> None:
    """And how they are forgotten, in words that a shell takes."""
    short = replace(EMULATED, num_shortages=2)
    assert basis_text(OFFER, (short,), a_predicted_plan()).endswith(
        "from 232 ranks of 72 plans measured on process with torch 2.15; wider for 2 "
        "ranks that ran out of memory (`plimsoll calibrations --forget process`, where "
        "the reason is gone)"
    )
    key = replace(EMULATED.key, device_product="NVIDIA H200")
    unmeasured = replace(short, key=key, num_observations=0)
    offer = an_offer(device_product="NVIDIA H200")
    text = basis_text(offer, (unmeasured,), a_predicted_plan())
    assert "assumed, for NVIDIA H200 was never measured; wider for 2 ranks" in text
    assert "--forget 'NVIDIA H200'`" in text


def test_what_others_saw_is_told_apart_as_well() -> None:
    """Nobody here can have it forgotten."""
    wider = replace(EMULATED, is_warned=True)
    text = basis_text(OFFER, (wider,), a_predicted_plan())
    assert text.endswith("with torch 2.15; wider for what other namespaces saw")


def test_what_makes_devices_smaller_is_told_of_a_question() -> None:
    """Once for each product, and nothing where no rank ran out of memory."""
    offers = tuple(a_device(900, name=name) for name in ("small", "smaller"))
    key = replace(EMULATED.key, device_product=offers[0].device_product)
    asked = a_question(offers=offers, overheads=(replace(EMULATED, key=key),))
    assert list(widening_lines(asked)) == []
    short = replace(asked, overheads=(replace(EMULATED, key=key, num_shortages=1),))
    assert list(widening_lines(short)) == [
        f"the bound beside tensors of {key.device_product} is wider for 1 rank that "
        "ran out of memory (`plimsoll calibrations --forget "
        f"{key.device_product}`, where the reason is gone)"
    ]
