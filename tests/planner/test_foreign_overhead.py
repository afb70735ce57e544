"""What others saw on their devices, beside what is known of ours."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.foreign_overhead import with_foreign
from plimsoll_planner.memory.chain_bytes import Bound
from plimsoll_planner.memory.device_bytes import Allowance, allowance
from plimsoll_planner.observed_overhead import (
    FEWEST_RANKS,
    ObservedRank,
    Shortage,
    assumed,
    observed_overhead,
    widened,
)
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey
from plimsoll_planner.records.problem import Limits
from tests.support.builders import an_engine, an_offer

KEY = OverheadKey(device_product="H200", torch_version="2.15.0", nccl_version="2.27")
MIB = 2**20
PLACES = [(b, c) for b in (1, 2, 8, 64) for c in (0, 1, 3)]
TENSORS = [0, MIB, 10 * 1024 * MIB]


def ranks_holding(outside_mib: list[int]) -> list[ObservedRank]:
    """Build eight ranks of as many plans, with what sits outside the allocator."""
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


def a_shortage(missing_mib: int, key: OverheadKey = KEY) -> Shortage:
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


def fit(outside_mib: list[int], *shortages: Shortage) -> DeviceOverhead:
    """Calibrate a GPU, and insist on a result."""
    found = observed_overhead(KEY, ranks_holding(outside_mib), shortages)
    assert found is not None
    return found


def allowed(overhead: DeviceOverhead, place: tuple[int, int]) -> Allowance:
    """Return what a rank on the GPU has besides tensors."""
    micro_batch, communicators = place
    return allowance(
        an_offer(),
        Limits(max_gpus=1),
        overhead,
        an_engine(verified=True, num_verified_plans=1),
        micro_batch=micro_batch,
        communicators=(communicators, communicators),
    )


held_mib = st.lists(
    st.integers(0, 4000), min_size=FEWEST_RANKS, max_size=FEWEST_RANKS + 2
)


@given(
    own=held_mib,
    foreign=held_mib,
    missing=st.lists(st.integers(0, 3000), max_size=2),
)
def test_no_bound_is_narrower_for_what_others_saw(
    own: list[int], foreign: list[int], missing: list[int]
) -> None:
    """Wherever a rank is, whatever tensors it has, with a fit of its own or none."""
    shortages = list(map(a_shortage, missing))
    theirs = fit(foreign, *shortages)
    for before, known in ((fit(own), [fit(own)]), (assumed(KEY), [])):
        (after,) = with_foreign(known, [theirs], shortages)
        assert after.num_observations == before.num_observations
        for place in PLACES:
            old, new = allowed(before, place), allowed(after, place)
            for tensors in TENSORS:
                assert new.device(Bound.UPPER, tensors) >= old.device(
                    Bound.UPPER, tensors
                )
                assert new.device(Bound.LOWER, tensors) <= old.device(
                    Bound.LOWER, tensors
                )


@given(own=held_mib, foreign=held_mib)
def test_what_others_were_fitted_to_lies_within(
    own: list[int], foreign: list[int]
) -> None:
    """Each line, at every place where their ranks were."""
    theirs = fit(foreign)
    (found,) = with_foreign([fit(own)], [theirs], ())
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
    shortage = a_shortage(2000)
    own, theirs = fit([600] * FEWEST_RANKS), observed_overhead(KEY, (), [shortage])
    assert theirs is not None
    assert with_foreign([own], [theirs], ()) == (own,)
    assert with_foreign([own], [theirs], [shortage]) == (widened(own, shortage),)


def test_a_shortage_counts_for_its_key_alone() -> None:
    """For every version of NCCL where it names none; not for another one."""
    own = fit([600] * FEWEST_RANKS)
    unversioned = a_shortage(2000, replace(KEY, nccl_version=""))
    assert with_foreign([own], (), [unversioned]) == (widened(own, unversioned),)
    other = a_shortage(2000, replace(KEY, nccl_version="2.28"))
    assert with_foreign([own], (), [other]) == (own,)


def test_who_agrees_widens_nothing() -> None:
    """Others who saw the same leave an overhead as it is."""
    own = fit([600] * FEWEST_RANKS)
    assert with_foreign([own], [own, own], ()) == (own,)
