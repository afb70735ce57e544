"""Shortages of device memory, one of each attempt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plimsoll_operator.store.store import Store
from plimsoll_planner.overhead.observed import Shortage, observed_overhead
from plimsoll_planner.records.device_overhead import OverheadKey
from tests.support.stores import in_store

KEY = OverheadKey(
    device_product="L4", image="x", torch_version="2.15.0", nccl_version="2.27"
)
SHORTAGE = Shortage(
    key=KEY,
    micro_batch=2,
    num_communicators=3,
    capacity_bytes=24 * 2**30,
    in_use_bytes=20 * 2**30,
    asked_bytes=2**30,
    predicted_allocated_bytes=22 * 2**30,
    predicted_device_bytes=23 * 2**30,
)


def test_the_first_shortage_of_an_attempt_counts(place: Path | str) -> None:
    """Every number of it, once; that of another attempt counts besides."""
    larger = replace(SHORTAGE, in_use_bytes=10 * 2**30)

    async def work(store: Store) -> None:
        for shortage in (SHORTAGE, SHORTAGE, larger):
            await store.shortages.save("uid", 1, shortage)
        once = observed_overhead(KEY, (), [SHORTAGE])
        assert await store.calibrations.refresh(KEY) == once
        await store.shortages.save("uid", 2, larger)
        both = observed_overhead(KEY, (), [SHORTAGE, larger])
        assert await store.calibrations.refresh(KEY) == both
        assert once != both

    in_store(place, work)
