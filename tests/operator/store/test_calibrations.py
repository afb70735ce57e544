"""Overheads that are fitted to what the store holds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.store import calibrations
from plimsoll_operator.store.store import Store, open_store
from plimsoll_planner.overhead.observed import ObservedRank, Shortage, observed_overhead
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.observation import Observation, ObservedPeak
from plimsoll_planner.records.plan import Phase, PhasePeak
from tests.support.builders import a_plan, an_observation
from tests.support.stores import in_store

KEY = OverheadKey(device_product="process", torch_version="2.15.0+cpu")
EXPECTED = ByteInterval(lower_bytes=80, expected_bytes=100, upper_bytes=120)
PREDICTED = PhasePeak(
    phase=Phase.BACKWARD, allocated=EXPECTED, reserved=EXPECTED, device=EXPECTED
)


def a_report(rank: int, **fields: Any) -> Observation:
    """Build a rank that is fullest in backward: 103, 110 and 150 + rank bytes."""
    numbers = [(Phase.BUILD, 5), (Phase.BACKWARD, 50), (Phase.OPTIMIZER_STEP, 40)]
    peaks = tuple(
        ObservedPeak(
            phase=phase,
            allocated_bytes=53 + outside,
            reserved_bytes=60 + outside,
            device_bytes=100 + rank + outside,
        )
        for phase, outside in numbers
    )
    defaults = {"rank": rank, "overhead_key": KEY, "peaks": peaks}
    return an_observation(**(defaults | fields))


def a_shortage() -> Shortage:
    """Build a device that had 60 of 1,000 bytes less than it said."""
    return Shortage(
        key=KEY,
        micro_batch=1,
        num_communicators=2,
        capacity_bytes=1000,
        in_use_bytes=900,
        asked_bytes=40,
        predicted_allocated_bytes=940,
        predicted_device_bytes=950,
    )


async def observe(
    store: Store,
    plan_uid: str,
    report: Observation,
    predicted: PhasePeak,
    now_s: float = 0.0,
) -> None:
    """Save a report of a rank that trains by `a_plan`."""
    micro_batch = a_plan().micro_batch
    await store.observations.save(plan_uid, report, predicted, micro_batch, now_s)


async def save(store: Store, reports: Iterable[Observation]) -> None:
    """Save reports of one attempt."""
    for report in reports:
        await observe(store, "uid", report, PREDICTED)


def fullest(rank: int) -> ObservedRank:
    """Figures of a rank that the fit is to see."""
    return ObservedRank(
        attempt="uid/1",
        micro_batch=a_plan().micro_batch,
        num_communicators=2,
        predicted_allocated_bytes=100,
        allocated_bytes=103,
        reserved_bytes=110,
        device_bytes=150 + rank,
    )


def test_the_fullest_phase_of_each_rank_is_fitted(place: Path | str) -> None:
    """Eight ranks, each once, with what was expected of it; the result is kept."""

    async def work(store: Store) -> None:
        await save(store, map(a_report, range(8)))
        found = await store.calibrations.refresh(KEY)
        assert found == observed_overhead(KEY, [fullest(rank) for rank in range(8)], ())
        assert await store.calibrations.of(["process", "L4"]) == (found,)
        assert await store.calibrations.of(["L4"]) == ()
        assert await store.calibrations.of([]) == ()

    in_store(place, work)


def test_ranks_that_say_nothing_of_a_key_are_left_out(place: Path | str) -> None:
    """Seven ranks; one of another version, and one that finished no step."""
    other = replace(KEY, torch_version="2.16.0+cpu")
    reports = [
        *map(a_report, range(7)),
        a_report(7, overhead_key=other),
        a_report(8, num_steps=0),
    ]

    async def work(store: Store) -> None:
        await save(store, reports)
        assert await store.calibrations.refresh(KEY) is None
        assert await store.calibrations.refresh(other) is None
        assert await store.calibrations.of(["process"]) == ()
        await save(store, [a_report(8)])
        found = await store.calibrations.refresh(KEY)
        assert found is not None
        assert found == observed_overhead(KEY, [fullest(r) for r in (*range(7), 8)], ())

    in_store(place, work)


def test_a_calibration_is_made_anew(place: Path | str) -> None:
    """More ranks take the place of the earlier fit; each key has its own."""
    with_nccl = replace(KEY, nccl_version="2.27.3")

    async def work(store: Store) -> None:
        await save(store, map(a_report, range(8)))
        first = await store.calibrations.refresh(KEY)
        await save(store, map(a_report, range(8, 12)))
        second = await store.calibrations.refresh(KEY)
        assert first != second
        assert await store.calibrations.of(["process"]) == (second,)
        await save(store, [a_report(r, overhead_key=with_nccl) for r in range(20, 28)])
        third = await store.calibrations.refresh(with_nccl)
        assert await store.calibrations.of(["process"]) == (second, third)

    in_store(place, work)


def test_a_shortage_can_be_forgotten(place: Path | str) -> None:
    """A device had less for a reason that is gone; only a person knows."""

    async def work(store: Store) -> None:
        await store.shortages.save("uid", 1, a_shortage())
        assert await store.calibrations.refresh(KEY) is not None
        assert [one.key for one in await store.calibrations.all()] == [KEY]
        assert await store.calibrations.forget_shortages("other") == 0
        assert await store.calibrations.forget_shortages("process") == 1
        assert await store.calibrations.all() == ()

    in_store(place, work)


def test_ranks_are_not_forgotten_with_a_shortage(place: Path | str) -> None:
    """What they held is fitted again, without it."""

    async def work(store: Store) -> None:
        await save(store, map(a_report, range(8)))
        before = await store.calibrations.refresh(KEY)
        await store.shortages.save("uid", 1, a_shortage())
        assert await store.calibrations.refresh(KEY) != before
        await store.calibrations.forget_shortages("process")
        assert await store.calibrations.all() == (before,)

    in_store(place, work)


def test_attempts_at_one_plan_are_one_plan(place: Path | str) -> None:
    """Trained again it says nothing new; with other predictions it is another."""
    gpu = replace(KEY, device_product="L4")
    fewer = replace(EXPECTED, expected_bytes=90)

    async def work(store: Store) -> None:
        found = []
        for uid, peak in (
            ("uid", PREDICTED),
            ("again", PREDICTED),
            ("other", replace(PREDICTED, allocated=fewer)),
        ):
            for rank in range(8):
                report = a_report(rank, overhead_key=gpu)
                await observe(store, uid, report, peak)
            found.append(await store.calibrations.refresh(gpu))
        numbers = [(one.num_observations, one.num_plans) for one in found if one]
        assert numbers == [(8, 1), (16, 1), (24, 2)]

    in_store(place, work)


def test_a_shortage_before_any_report_counts_for_every_nccl(place: Path | str) -> None:
    """Its rank had not told which one runs there; forgotten it counts for none."""
    gpu = OverheadKey(device_product="L4", torch_version="2.15.0")
    known = replace(gpu, nccl_version="2.27.3")
    short = replace(a_shortage(), key=gpu, capacity_bytes=10 * 2**30)

    async def work(store: Store) -> None:
        await save(store, [a_report(rank, overhead_key=known) for rank in range(8)])
        before = await store.calibrations.refresh(known)
        assert before is not None
        await store.shortages.save("uid", 1, short)
        untold = await store.calibrations.refresh(gpu)
        now = {one.key: one for one in await store.calibrations.all()}
        assert now == {gpu: untold, known: now[known]}
        assert (before.num_shortages, now[known].num_shortages) == (0, 1)
        assert await store.calibrations.refresh(known) == now[known]
        assert await store.calibrations.forget_shortages("L4") == 1
        assert await store.calibrations.all() == (before,)

    in_store(place, work)


PATIENCE_S = 120.0


@dataclass
class SlowFit:
    """Stands in for the fit: the first one waits until it may go on."""

    began: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)
    num_calls: int = 0

    def __call__(self, *given: Any) -> DeviceOverhead | None:
        """Fit, in the end."""
        self.num_calls += 1
        if self.num_calls == 1:
            self.began.set()
            assert self.may_go_on.wait(PATIENCE_S)
        return observed_overhead(*given)


async def refresh_around(
    store: Store, fit: SlowFit, meanwhile: Callable[[], Awaitable[object]]
) -> DeviceOverhead | None:
    """Do something while a calibration is fitted; return what is known in the end."""
    fitting = asyncio.create_task(store.calibrations.refresh(KEY))
    assert await asyncio.to_thread(fit.began.wait, PATIENCE_S)
    await asyncio.wait_for(meanwhile(), PATIENCE_S)
    fit.may_go_on.set()
    return await fitting


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> SlowFit:
    """A fit that takes as long as we want."""
    fit = SlowFit()
    monkeypatch.setattr(calibrations, "observed_overhead", fit)
    return fit


def test_nobody_waits_for_a_fit(place: Path | str, fit: SlowFit) -> None:
    """Reports are saved meanwhile; the next fit is the one that they count for."""

    async def work(store: Store) -> None:
        await save(store, map(a_report, range(8)))
        found = await refresh_around(store, fit, lambda: save(store, [a_report(8)]))
        assert found == observed_overhead(KEY, [fullest(r) for r in range(8)], ())
        later = await store.calibrations.refresh(KEY)
        assert later == observed_overhead(KEY, [fullest(r) for r in range(9)], ())

    in_store(place, work)


def test_an_older_fit_never_takes_the_place_of_a_newer_one(
    place: Path | str, fit: SlowFit
) -> None:
    """Another process has fitted more ranks meanwhile: the older fit is made again."""

    async def work(store: Store) -> None:
        await save(store, map(a_report, range(8)))

        async def by_another() -> None:
            async with open_store(place) as other:
                await save(other, map(a_report, range(8, 12)))
                await other.calibrations.refresh(KEY)

        found = await refresh_around(store, fit, by_another)
        assert found == observed_overhead(KEY, [fullest(r) for r in range(12)], ())
        assert await store.calibrations.all() == (found,)
        assert fit.num_calls == 3

    in_store(place, work)


def test_a_shortage_that_is_forgotten_during_a_fit_stays_forgotten(
    place: Path | str, fit: SlowFit
) -> None:
    """Also where nothing else was known: what the fit began with is not there."""

    async def work(store: Store) -> None:
        await store.shortages.save("uid", 1, a_shortage())

        async def by_another() -> None:
            async with open_store(place) as other:
                assert await other.calibrations.forget_shortages("process") == 1

        assert await refresh_around(store, fit, by_another) is None
        assert await store.calibrations.all() == ()

    in_store(place, work)


def test_a_fit_takes_the_newest_gangs_and_each_plan_first(
    place: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that is trained every night pushes no other one out."""
    monkeypatch.setattr(calibrations, "MOST_RANKS", 17)
    gpu = replace(KEY, device_product="L4")
    other = replace(PREDICTED, allocated=replace(EXPECTED, expected_bytes=90))
    gangs = {"old": other, "mon": PREDICTED, "tue": PREDICTED, "wed": PREDICTED}

    async def work(store: Store) -> None:
        for now_s, (uid, peak) in enumerate(gangs.items()):
            for rank in range(8):
                report = a_report(rank + 10 * now_s, overhead_key=gpu)
                await observe(store, uid, report, peak, float(now_s))
        found = await store.calibrations.refresh(gpu)
        ranks = [
            replace(
                fullest(rank + 10 * place),
                attempt=f"{uid}/1",
                predicted_allocated_bytes=gangs[uid].allocated.expected_bytes,
            )
            for place, uid in enumerate(gangs)
            if uid != "mon"
            for rank in range(8)
        ]
        assert found == observed_overhead(gpu, ranks, ())

    in_store(place, work)
