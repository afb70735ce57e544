"""Allocated, reserved and device bytes, and the capacity backwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.overhead.allowance import (
    Allowance,
    allowance,
    num_communicators,
    overhead_for,
)
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
    SeenAt,
)
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.strategy import Mesh
from tests.support.builders import MIB, a_fingerprint, an_engine, an_offer, an_overhead

LIMITS = Limits(max_gpus=1)
INTERVALS = st.lists(st.integers(0, 500), min_size=3, max_size=3).map(
    lambda values: ByteInterval(
        **dict(
            zip(
                ("lower_bytes", "expected_bytes", "upper_bytes"),
                sorted(values),
                strict=True,
            )
        )
    )
)
ALLOWANCES = st.builds(
    Allowance,
    capacity_bytes=st.integers(0, 5000),
    widening_permille=st.sampled_from([(0, 0, 0), (-50, 0, 50)]),
    share_permille=st.sampled_from([(0, 0, 0), (10, 40, 70)]),
    unshared_bytes=st.integers(0, 2000),
    allocator=INTERVALS,
    outside=INTERVALS,
    is_assumed=st.booleans(),
)


@given(ALLOWANCES, st.sampled_from(list(Bound)))
def test_the_tensor_capacity_is_the_largest_that_fits(
    allowed: Allowance, bound: Bound
) -> None:
    """One byte more than it does not fit, and it does."""
    most = allowed.tensor_capacity(bound)
    assert allowed.device(bound, most + 1) > allowed.capacity_bytes
    if most >= 0:
        assert allowed.device(bound, most) <= allowed.capacity_bytes


def test_the_nearest_overhead_of_the_same_version_is_used() -> None:
    """That of the image, of the version as closely stated, of most ranks.

    Where two rest on equally many, that of more shortages.
    """

    def measured(
        product: str, torch: str, image: str = "", ranks: int = 1, shortages: int = 0
    ) -> DeviceOverhead:
        key = OverheadKey(device_product=product, torch_version=torch, image=image)
        return an_overhead(key=key, num_observations=ranks, num_shortages=shortages)

    offer = an_offer()
    others = (
        measured("L4", "2.15.0", "mine", ranks=99),
        measured(offer.device_product, "2.1", "mine", ranks=99),
        measured(offer.device_product, "2.14.1", "mine", ranks=99),
        measured(offer.device_product, "2.15.0+cpu", "mine", ranks=99),
    )
    rising = (
        measured(offer.device_product, "2.15", ranks=2),
        measured(offer.device_product, "2.15", ranks=9),
        measured(offer.device_product, "2.15.0", ranks=3),
        measured(offer.device_product, "2.15.0+cu132", ranks=1),
        measured(offer.device_product, "2.15.0", "mine", ranks=1),
        measured(offer.device_product, "2.15.0", "mine", ranks=1, shortages=1),
    )
    fingerprint = a_fingerprint(torch_version="2.15.0+cu132", image="mine")
    assert overhead_for(offer, others, fingerprint) is None
    for place, best in enumerate(rising):
        assert overhead_for(offer, (*others, *rising[: place + 1]), fingerprint) is best


def test_a_calibrated_line_is_used() -> None:
    """For its micro-batch and communicators."""
    verified = an_engine(verified=True, num_verified_plans=1)
    allowed = allowance(
        an_offer(), LIMITS, an_overhead(), verified, micro_batch=2, communicators=(3, 3)
    )
    assert not allowed.is_assumed
    assert allowed.reserved(Bound.EXPECTED, 100) == 100 + 64 * MIB
    assert allowed.device(Bound.EXPECTED, 100) == 100 + (64 + 600 + 1500) * MIB
    assert allowed.allocated(Bound.UPPER, 100) == 100


def test_without_calibration_cuda_is_assumed_and_emulated_is_exact() -> None:
    """1 GiB, 1 GiB a group, 0.5 GiB and 4 % for CUDA; an emulated one has none."""
    verified = an_engine(verified=True, num_verified_plans=1)
    cuda = allowance(
        an_offer(), LIMITS, None, verified, micro_batch=1, communicators=(1, 1)
    )
    assert cuda.is_assumed
    assert cuda.device(Bound.LOWER, 1000) == 1000
    assert cuda.reserved(Bound.UPPER, 1000) == 2**30 + 1120
    assert cuda.device(Bound.EXPECTED, 0) == 5 * 2**29
    offer = an_offer(device_kind=DeviceKind.EMULATED)
    counted = allowance(
        offer, LIMITS, None, verified, micro_batch=1, communicators=(1, 1)
    )
    assert not counted.is_assumed
    assert [counted.device(bound, 77) for bound in Bound] == [77, 77, 77]


@given(
    places=st.sets(
        st.tuples(st.integers(1, 8), st.integers(0, 4)), min_size=1, max_size=4
    ),
    line=st.tuples(*[st.integers(0, 3) for _ in range(4)]),
    kind=st.sampled_from(DeviceKind),
)
def test_more_is_never_allowed_less(
    places: set[tuple[int, int]], line: tuple[int, int, int, int], kind: DeviceKind
) -> None:
    """The upper bound grows with samples and communicators; the search relies on it."""
    constant, samples, number, residual = (part * 2**29 for part in line)
    overhead = an_overhead(
        outside=OverheadLine(
            constant_bytes=constant,
            bytes_per_sample=samples,
            bytes_per_communicator=number,
            residual_bytes=residual,
        ),
        seen=tuple(
            SeenAt(micro_batch=b, num_communicators=c) for b, c in sorted(places)
        ),
        most_allocated_bytes=1,
    )

    def upper_bytes(micro_batch: int, communicators: int) -> int:
        allowed = allowance(
            an_offer(device_kind=kind),
            LIMITS,
            overhead,
            an_engine(),
            micro_batch=micro_batch,
            communicators=(0, communicators),
        )
        return allowed.device(Bound.UPPER, 1000)

    for b in range(1, 9):
        for c in range(5):
            assert upper_bytes(b, c) <= upper_bytes(b, c + 1)
            assert upper_bytes(b, c) <= upper_bytes(b + 1, c)


def test_an_unverified_engine_widens_what_is_allocated() -> None:
    """5 % on both sides, none in the middle."""
    offer = an_offer(device_kind=DeviceKind.EMULATED)
    allowed = allowance(
        offer, LIMITS, None, an_engine(), micro_batch=1, communicators=(1, 1)
    )
    assert [allowed.allocated(bound, 1000) for bound in Bound] == [950, 1000, 1050]


@pytest.mark.parametrize(
    ("pipeline", "data", "count"), [(1, 1, 0), (2, 1, 2), (1, 4, 2), (3, 2, 3)]
)
def test_communicators(pipeline: int, data: int, count: int) -> None:
    """Groups of several ranks: the world, and one for each degree above 1.

    A tie adds at most one where it may be of some stages, but not of all.
    """
    assert num_communicators(Mesh(pipeline=pipeline, data=data), 0) == (count, count)
    most = count + 2 if pipeline > 2 else count
    assert num_communicators(Mesh(pipeline=pipeline, data=data), 2) == (count, most)


def test_the_fewest_communicators_are_the_lower_bound() -> None:
    """A failing plan must fail without the groups that ties may need."""
    verified = an_engine(verified=True, num_verified_plans=1)
    few, some, many = (
        allowance(
            an_offer(),
            LIMITS,
            an_overhead(),
            verified,
            micro_batch=1,
            communicators=count,
        )
        for count in ((2, 2), (2, 3), (3, 3))
    )
    assert some.device(Bound.LOWER, 100) == few.device(Bound.LOWER, 100)
    assert some.device(Bound.EXPECTED, 100) == many.device(Bound.EXPECTED, 100)
    assert some.device(Bound.UPPER, 100) == many.device(Bound.UPPER, 100)


def test_headroom_is_kept_free() -> None:
    """A tenth of the device, rounded so that no byte too many is used."""
    assert Limits(max_gpus=1, headroom=0.1).usable_bytes(1005) == 904
