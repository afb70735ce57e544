"""Observations, by plan, attempt and rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_operator.store.store import Store
from plimsoll_planner.records.device_overhead import OverheadKey
from plimsoll_planner.records.model_profile import DeviceKind
from tests.support.builders import a_fingerprint, a_peak, an_observation
from tests.support.drawing import CHOSEN
from tests.support.stores import PEAKS, at_once, in_store, observe

NUM_PROCESSES = 8
NUM_IN_FILE, NUM_ON_SERVER = (10_000, 2_000) if CHOSEN == "nightly" else (2_000, 1_000)
"""A server takes twice as long for each, on the cores that the writers use."""


def test_a_report_comes_back_as_it_was(place: Path | str) -> None:
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
        for report in reversed(reports):
            await store.observations.save("uid", report, a_peak(), 1, 2.5)
        assert await store.observations.of("uid", 1) == tuple(reports)
        assert await store.observations.of("uid", 2) == ()
        assert await store.observations.of("other", 1) == ()

    in_store(place, work)


def test_the_later_report_of_a_rank_stands(place: Path | str) -> None:
    """By the steps that it has finished, whatever order reports arrive in."""
    first, second = (
        an_observation(num_steps=steps, peaks=PEAKS[: steps + 1]) for steps in (1, 3)
    )

    async def work(store: Store) -> None:
        for report in (first, second, second, first):
            await store.observations.save("uid", report, a_peak(), 1, 2.5)
        assert await store.observations.of("uid", 1) == (second,)

    in_store(place, work)


def test_news_are_of_plans_with_reports_since_then(place: Path | str) -> None:
    """The time itself counts; a report that was dropped is no news."""
    early, late = an_observation(num_steps=1), an_observation(num_steps=2)

    async def work(store: Store) -> None:
        reports = store.observations
        await reports.save("a", late, a_peak(), 1, 10.0)
        await store.within("x").observations.save("b", early, a_peak(), 1, 20.0)
        await reports.save("a", early, a_peak(), 1, 30.0)
        assert await reports.news(10.0) == {"a", "b"}
        assert await reports.news(20.0) == {"b"}
        assert await reports.news(20.5) == set()
        await reports.save("a", late, a_peak(), 1, 40.0)
        assert await reports.news(20.5) == {"a"}

    in_store(place, work)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_report_is_lost_of_many(place: Path | str) -> None:
    """Of eight processes that write at the same time, each of which waits its turn."""
    number = NUM_IN_FILE if isinstance(place, Path) else NUM_ON_SERVER
    shares = [range(i, number, NUM_PROCESSES) for i in range(NUM_PROCESSES)]
    at_once(observe, [(place, share) for share in shares])

    async def work(store: Store) -> None:
        found = await store.observations.of("uid", 1)
        assert [one.rank for one in found] == list(range(number))
        assert all(one.peaks == PEAKS for one in found)

    in_store(place, work)
