"""Observations of other namespaces, beside those of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.overhead.allowance import Allowance, allowance, overhead_for
from plimsoll_planner.overhead.built_in import EMULATED, with_built_in
from plimsoll_planner.overhead.observed import (
    FEWEST_RANKS,
    ObservedRank,
    Shortage,
    observed_overhead,
    unobserved,
    widened,
)
from plimsoll_planner.overhead.other_namespaces import with_other_namespaces
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey
from plimsoll_planner.records.limits import Limits
from tests.support.builders import a_fingerprint, an_engine, an_offer

OFFER = an_offer()
FINGERPRINT = a_fingerprint(image="app@sha256:1", torch_version="2.15.0+cu132")
KEY = OverheadKey(
    device_product=OFFER.device_product,
    image=FINGERPRINT.image,
    torch_version=FINGERPRINT.torch_version,
    nccl_version="2.27",
)
UNTOLD = replace(KEY, nccl_version="")
"""Of a rank that ran out of memory before it knew."""
KEYS = (
    KEY,
    UNTOLD,
    replace(KEY, image="app@sha256:2"),
    replace(KEY, image="", torch_version="2.15"),
    replace(KEY, torch_version="2.15.0", nccl_version="2.28"),
)
MIB = 2**20
PLACES = [(1, 0), (2, 1), (3, 1), (8, 0), (64, 3)]
TENSORS = [0, 10 * 1024 * MIB]


def ranks_holding(outside_mib: list[int]) -> list[ObservedRank]:
    """Build ranks of as many plans, with what sits outside the allocator."""
    return [
        ObservedRank(
            attempt=str(place),
            micro_batch=1 + place % 3,
            num_communicators=place % 2,
            predicted_allocated_bytes=(1000 + place) * MIB,
            allocated_bytes=(1000 + place) * MIB,
            reserved_bytes=(1030 + place) * MIB,
            device_bytes=(1030 + place + outside) * MIB,
        )
        for place, outside in enumerate(outside_mib)
    ]


def a_shortage(missing_mib: int = 2000, key: OverheadKey = KEY) -> Shortage:
    """Build a rank that lacked some of the 4 GiB that were planned with."""
    return Shortage(
        key=key,
        micro_batch=2,
        num_communicators=1,
        capacity_bytes=4096 * MIB,
        in_use_bytes=(4096 - missing_mib) * MIB,
        asked_bytes=MIB,
        predicted_allocated_bytes=3000 * MIB,
        predicted_device_bytes=4000 * MIB,
    )


def fit(
    outside_mib: list[int], *shortages: Shortage, key: OverheadKey = KEY
) -> DeviceOverhead:
    """Calibrate a GPU, and insist on a result."""
    found = observed_overhead(key, ranks_holding(outside_mib), shortages)
    assert found is not None
    return found


def warned(
    own: Sequence[DeviceOverhead],
    foreign: Sequence[DeviceOverhead] = (),
    shortages: Sequence[Shortage] = (),
) -> tuple[DeviceOverhead, ...]:
    """Overheads for the GPU that others may know of."""
    return with_other_namespaces([OFFER], FINGERPRINT, own, foreign, shortages)


def allowed(overheads: tuple[DeviceOverhead, ...], place: tuple[int, int]) -> Allowance:
    """Bytes of a rank on the GPU besides tensors, as in the search."""
    micro_batch, communicators = place
    return allowance(
        OFFER,
        Limits(max_gpus=1),
        overhead_for(OFFER, with_built_in(overheads, [OFFER]), FINGERPRINT),
        an_engine(verified=True, num_verified_plans=1),
        micro_batch=micro_batch,
        communicators=(communicators, communicators),
    )


shortages_seen = st.builds(a_shortage, st.integers(0, 3000), st.sampled_from(KEYS))
held_mib = st.lists(st.integers(0, 4000), max_size=FEWEST_RANKS + 2)


@st.composite
def seen_by_some(
    draw: st.DrawFn,
) -> tuple[list[DeviceOverhead], list[Shortage]]:
    """Draw what is known of some keys, with the shortages of all of them."""
    shortages = draw(st.lists(shortages_seen, max_size=3))
    found = [
        observed_overhead(
            key,
            ranks_holding(draw(held_mib)),
            [replace(one, key=key) for one in shortages if one.key in (key, UNTOLD)],
        )
        for key in draw(st.lists(st.sampled_from(KEYS), unique=True))
    ]
    return [one for one in found if one is not None], shortages


@given(ours=seen_by_some(), theirs=seen_by_some())
def test_no_bound_is_narrower_for_what_others_saw(
    ours: tuple[list[DeviceOverhead], list[Shortage]],
    theirs: tuple[list[DeviceOverhead], list[Shortage]],
) -> None:
    """Of the overhead that the search takes, of several images and versions.

    Wherever a rank is, and whatever tensors it has.
    """
    own = tuple(ours[0])
    after = warned(own, *theirs)
    for place in PLACES:
        old, new = allowed(own, place), allowed(after, place)
        for tensors in TENSORS:
            most = [one.device(Bound.UPPER, tensors) for one in (old, new)]
            least = [one.device(Bound.LOWER, tensors) for one in (old, new)]
            assert most[0] <= most[1]
            assert least[1] <= least[0]


@given(
    own=st.lists(st.integers(0, 4000), min_size=FEWEST_RANKS),
    foreign=st.lists(st.integers(0, 4000), min_size=FEWEST_RANKS),
)
def test_what_others_were_fitted_to_lies_within(
    own: list[int], foreign: list[int]
) -> None:
    """Each line, at every place where their ranks were."""
    theirs = fit(foreign)
    (found,) = warned([fit(own)], [theirs])
    for seen in theirs.seen:
        at = seen.micro_batch, seen.num_communicators
        for ours, other in (
            (found.allocator.at(*at), theirs.allocator.at(*at)),
            (found.outside.at(*at), theirs.outside.at(*at)),
        ):
            assert ours.lower_bytes <= other.lower_bytes
            assert other.upper_bytes <= ours.upper_bytes


def test_what_is_assumed_elsewhere_says_nothing_here() -> None:
    """Others lacked memory with too few ranks: their shortage counts, and no more."""
    shortage = a_shortage()
    own, theirs = fit([600] * FEWEST_RANKS), observed_overhead(KEY, (), [shortage])
    assert theirs is not None
    assert warned([own], [theirs]) == (own,)
    wider = replace(widened(own, shortage), num_shortages=0, is_warned=True)
    assert warned([own], [theirs], [shortage]) == (wider,)


def test_others_are_heard_where_nothing_is_known_here() -> None:
    """The assumption stays the basis, and is no more measured than before."""
    (found,) = warned([], [fit([6000] * FEWEST_RANKS)])
    assert found.key == UNTOLD
    assert found.num_observations == 0
    assert found.outside.residual_bytes > unobserved(KEY).outside.residual_bytes


def test_other_images_and_versions_say_nothing() -> None:
    """Other software may take more for reasons of its own."""
    own = fit([600] * FEWEST_RANKS)
    for other in (
        replace(KEY, image="app@sha256:2"),
        replace(KEY, torch_version="2.16.0"),
        replace(KEY, device_product="L4"),
    ):
        theirs = fit([4000] * FEWEST_RANKS, key=other)
        assert warned([own], [theirs], [a_shortage(key=other)]) == (own,)


def test_who_agrees_widens_nothing() -> None:
    """Others who saw the same leave an overhead as it is."""
    own = fit([600] * FEWEST_RANKS)
    assert warned([own], [own, own]) == (own,)


def test_what_comes_with_plimsoll_is_widened_as_well() -> None:
    """An emulated device that had less elsewhere; its overhead is there only once."""
    offer = an_offer(device_product=EMULATED.key.device_product)
    key = replace(UNTOLD, device_product=offer.device_product)
    widened = with_other_namespaces([offer], FINGERPRINT, (), (), [a_shortage(key=key)])
    (found,) = with_built_in(widened, [offer])
    assert found.key == EMULATED.key
    assert found.outside.residual_bytes > EMULATED.outside.residual_bytes


def test_an_absurd_report_leaves_a_bound_all_the_same() -> None:
    """Bytes that were asked for in vain count for no more than the device."""
    absurd = replace(a_shortage(), asked_bytes=2**53 - 1)
    (found,) = warned([fit([600] * FEWEST_RANKS)], (), [absurd])
    tensors = absurd.predicted_allocated_bytes
    beside = allowed((found,), (2, 1)).device(Bound.UPPER, tensors) - tensors
    assert beside == absurd.capacity_bytes + 1
