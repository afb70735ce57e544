"""Observations, by plan, attempt and rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_operator.store.store import Store
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.device_overhead import OverheadKey
from plimsoll_planner.records.model_profile import DeviceKind
from tests.support.builders import a_fingerprint, a_peak, an_observation
from tests.support.stores import PEAKS, at_once, begin_attempt, in_store, observe

NUM_PROCESSES, NUM_EACH = 8, 1250


def test_a_report_comes_back_as_it_was(tmp_path: Path) -> None:
    """Every field and the order of the phases; ranks come in order."""
    key = OverheadKey(
        device_product="L4",
        image="x@sha256:1",
        torch_version="2.15.0+cu132",
        nccl_version="2.27.3",
    )
    reports = [
        an_observation(rank=0, num_steps=0, step_s=(), peaks=()),
        an_observation(rank=1, fingerprint=a_fingerprint(image="", libraries=())),
        an_observation(rank=2, device_kind=DeviceKind.EMULATED, num_communicators=0),
        an_observation(rank=3, overhead_key=key, peaks=tuple(reversed(PEAKS))),
        an_observation(rank=4, plan_digest="sha256:" + "a" * 64, revision=3),
    ]

    async def work(store: Store) -> None:
        await begin_attempt(store, "uid", 1)
        for report in reversed(reports):
            await store.observations.save("uid", report, a_peak())
        assert await store.observations.of("uid", 1) == tuple(reports)
        assert await store.observations.of("uid", 2) == ()
        assert await store.observations.of("other", 1) == ()

    in_store(tmp_path / "store.db", work)


def test_the_later_report_of_a_rank_stands(tmp_path: Path) -> None:
    """By the steps that it has finished, whatever order reports arrive in."""
    first, second = (
        an_observation(num_steps=steps, peaks=PEAKS[: steps + 1]) for steps in (1, 3)
    )

    async def work(store: Store) -> None:
        await begin_attempt(store, "uid", 1)
        for report in (first, second, second, first):
            await store.observations.save("uid", report, a_peak())
        assert await store.observations.of("uid", 1) == (second,)

    in_store(tmp_path / "store.db", work)


def test_a_report_of_no_attempt_is_refused(tmp_path: Path) -> None:
    """Nothing is stored of what nobody was told to run."""

    async def work(store: Store) -> None:
        with pytest.raises(InvalidFieldError, match=r"Observation\.attempt: got 1"):
            await store.observations.save("uid", an_observation(), a_peak())
        assert await store.observations.of("uid", 1) == ()

    in_store(tmp_path / "store.db", work)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_none_of_ten_thousand_reports_is_lost(tmp_path: Path) -> None:
    """Of eight processes that write at the same time, each of which waits its turn."""
    path = tmp_path / "store.db"
    shares = [range(i, NUM_PROCESSES * NUM_EACH, 8) for i in range(NUM_PROCESSES)]
    at_once(observe, [(path, share) for share in shares])

    async def work(store: Store) -> None:
        found = await store.observations.of("uid", 1)
        assert [one.rank for one in found] == list(range(NUM_PROCESSES * NUM_EACH))
        assert all(one.peaks == PEAKS for one in found)

    in_store(path, work)
