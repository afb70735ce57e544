"""What a store is within a scope, and what it forgets with a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from plimsoll_operator.errors import StoreFullError
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.questions import Occasion
from plimsoll_operator.store.store import Store
from plimsoll_planner.overhead.observed import Shortage
from plimsoll_planner.overhead.other_namespaces import with_other_namespaces
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey
from plimsoll_planner.records.document import digest_of
from tests.support.builders import (
    DIGEST,
    a_fingerprint,
    a_peak,
    a_problem,
    a_profile,
    a_replay,
    an_infeasible,
    an_observation,
    an_offer,
)
from tests.support.stores import an_end, by_hand, in_store, in_store_at

KEY = OverheadKey(device_product="L4", torch_version="2.15.0")
SHORTAGE = Shortage(
    key=KEY,
    micro_batch=2,
    num_communicators=3,
    capacity_bytes=2000,
    in_use_bytes=1000,
    asked_bytes=500,
    predicted_allocated_bytes=1000,
    predicted_device_bytes=1500,
)
LARGE_SHORTAGE = replace(SHORTAGE, capacity_bytes=2**33)


def an_answer(num_rounds: int) -> StoredAnswer:
    """Build an answer that was found after some rounds."""
    return StoredAnswer(
        answer=an_infeasible(), unreplayed="", is_certified=True, num_rounds=num_rounds
    )


async def ask(store: Store, plan_uid: str) -> None:
    """Put a question for a plan."""
    occasion = Occasion(plan_uid=plan_uid, generation=1, round=0, profile_digest=DIGEST)
    await store.questions.put(occasion, a_problem())


def test_no_namespace_sees_what_another_one_knows(place: Path | str) -> None:
    """Neither finds nor replaces it; profiles have the namespace in their key."""

    async def work(store: Store) -> None:
        one, other = store.within("one"), store.within("other")
        await one.replays.save(a_replay())
        await one.answers.save(DIGEST, an_answer(1))
        await one.observations.save("uid", an_observation(), a_peak(), 1, 0.0)
        for scope in (store, other):
            assert await scope.replays.find(DIGEST) is None
            assert await scope.answers.find(DIGEST) is None
            assert await scope.observations.of("uid", 1) == ()
        later = a_replay(torch_version="2.16.0")
        await other.replays.save(later)
        await other.answers.save(DIGEST, an_answer(2))
        assert await one.replays.find(DIGEST) == a_replay()
        assert await other.replays.find(DIGEST) == later
        assert await one.answers.find(DIGEST) == an_answer(1)
        assert await other.answers.find(DIGEST) == an_answer(2)
        await one.profiles.save(a_profile(), 1.0)
        assert await other.profiles.find(DIGEST) is not None

    in_store(place, work)


def test_a_namespace_learns_from_its_own_ranks_alone(place: Path | str) -> None:
    """From what they held and lacked; it forgets its own shortages alone."""
    reports = [an_observation(rank=rank, overhead_key=KEY) for rank in range(8)]

    async def work(store: Store) -> None:
        one, other = store.within("one"), store.within("other")
        for report in reports:
            await one.observations.save("a", report, a_peak(), 1, 0.0)
        assert await other.calibrations.refresh(KEY) is None
        held = await one.calibrations.refresh(KEY)
        assert held is not None
        await other.shortages.save("b", 1, SHORTAGE)
        assert await one.calibrations.refresh(KEY) == held
        lacked = await other.calibrations.refresh(KEY)
        assert lacked is not None
        assert (lacked.num_observations, lacked.num_shortages) == (0, 1)
        assert await one.calibrations.forget_shortages("L4") == 0
        assert await other.calibrations.of(["L4"]) == (lacked,)
        assert await one.calibrations.of(["L4"]) == (held,)
        assert await other.calibrations.forget_shortages("L4") == 1
        assert await other.calibrations.all() == ()
        assert await one.calibrations.all() == (held,)

    in_store(place, work)


def test_a_namespace_that_shares_is_warned_and_not_promised(place: Path | str) -> None:
    """What others held or lacked widens its bound; nothing of theirs narrows it."""
    reports = [an_observation(rank=rank, overhead_key=KEY) for rank in range(8)]
    offers = [an_offer(device_product="L4")]
    code = a_fingerprint(image=KEY.image, torch_version=KEY.torch_version)

    async def known(store: Store) -> tuple[DeviceOverhead, ...]:
        return await store.calibrations.to_plan_with(offers, code)

    async def work(store: Store) -> None:
        one = store.within("one", shares=True)
        other = store.within("other", shares=True)
        alone = store.within("other")
        assert await known(other) == ()
        for report in reports:
            await one.observations.save("a", report, a_peak(), 1, 0.0)
        held = await one.calibrations.refresh(KEY)
        assert held is not None
        assert await known(one) == (held,)
        assert await known(other) == with_other_namespaces(offers, code, (), [held], ())
        await other.shortages.save("b", 1, LARGE_SHORTAGE)
        lacked = await other.calibrations.refresh(KEY)
        assert lacked is not None
        (wider,) = with_other_namespaces(offers, code, [held], (), [LARGE_SHORTAGE])
        assert wider.is_warned
        assert await known(one) == (wider,)
        assert await known(other) == with_other_namespaces(
            offers, code, [lacked], [held], ()
        )
        assert await known(alone) == (lacked,)
        assert await one.calibrations.all() == (held,)
        elsewhere = [an_offer(device_product="H100")]
        assert await one.calibrations.to_plan_with(elsewhere, code) == ()

    in_store(place, work)


def test_reports_follow_a_plan_into_another_scope(place: Path | str) -> None:
    """A rank has one report all the same, where it was told last."""

    async def work(store: Store) -> None:
        team = store.within("team")
        for scope in (team, store):
            await scope.observations.save("uid", an_observation(), a_peak(), 1, 0.0)
        assert await team.observations.of("uid", 1) == ()
        assert await store.observations.of("uid", 1) == (an_observation(),)

    in_store(place, work)


def test_what_is_a_plans_alone_is_forgotten_with_it(place: Path | str) -> None:
    """What its ranks held is kept; nothing of another plan is lost."""

    async def work(store: Store) -> None:
        assert await store.known_plans() == set()
        for uid in ("uid", "other"):
            await ask(store, uid)
            await store.observations.save(uid, an_observation(), a_peak(), 1, 0.0)
        for uid in ("uid", "ended"):
            await store.pod_ends.save(uid, 1, 0, "pod", an_end())
        assert await store.known_plans() == {"uid", "other", "ended"}
        await store.forget("uid")
        assert await store.known_plans() == {"other", "ended"}
        assert await store.questions.of("uid") == ()
        assert await store.pod_ends.of("uid", 1) == {}
        assert await store.observations.of("uid", 1) == (an_observation(),)
        assert len(await store.questions.of("other")) == 1
        assert len(await store.pod_ends.of("ended", 1)) == 1
        await store.forget("uid")

    in_store(place, work)


DAY_S = 86_400.0
GONE = DIGEST.replace("0", "1")


def used_s(place: Path | str, table: str) -> float:
    """When the only row of a table was last used."""
    [(found,)] = by_hand(place, f"SELECT used_s FROM {table}")  # noqa: S608 - ours
    return float(found)


def test_what_nobody_has_used_is_forgotten(place: Path | str) -> None:
    """In every scope; what was observed stays, for calibrations are fitted to it."""

    async def fill(store: Store) -> None:
        await store.profiles.save(a_profile(), 1.0)
        for scope in ("one", "other"):
            await store.within(scope).replays.save(a_replay())
            await store.within(scope).answers.save(DIGEST, an_answer(1))
        await store.observations.save("uid", an_observation(), a_peak(), 1, 0.0)
        assert await store.forget_unused(101 * DAY_S) == 0

    async def forget(store: Store) -> None:
        assert await store.forget_unused(101 * DAY_S + 1) == 5
        one = store.within("one")
        assert await store.profiles.find(DIGEST) is None
        assert await one.replays.find(DIGEST) is None
        assert await one.answers.find(DIGEST) is None
        assert len(await store.observations.of("uid", 1)) == 1

    in_store_at(place, fill, lambda: 100 * DAY_S)
    in_store(place, forget)


def test_what_is_read_is_used(place: Path | str) -> None:
    """So it stays; a second time on the same day nothing is written."""
    now_s = [100 * DAY_S]

    async def read(store: Store) -> None:
        assert await store.profiles.find(DIGEST) is not None
        assert await store.replays.find(DIGEST) is not None
        assert await store.answers.find(DIGEST) is not None

    async def work(store: Store) -> None:
        await store.profiles.save(a_profile(), 1.0)
        await store.replays.save(a_replay())
        await store.answers.save(DIGEST, an_answer(1))
        for passed_s, noted_s in ((0.9, 0.0), (1.0, 1.0), (1.9, 1.0), (3.0, 3.0)):
            now_s[0] = (100 + passed_s) * DAY_S
            await read(store)
            for table in ("profile", "replay", "answer"):
                assert used_s(place, table) == (100 + noted_s) * DAY_S
            assert await store.forget_unused(now_s[0]) == 0

    in_store_at(place, work, lambda: now_s[0])


def test_what_is_read_is_found_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk takes nothing from those who read."""

    async def work(store: Store) -> None:
        await store.profiles.save(a_profile(), 1.0)

        def full() -> NoReturn:
            raise StoreFullError("no room")

        monkeypatch.setattr(store._database, "write", full)
        monkeypatch.setattr(store._database, "clock", lambda: 1e12)
        assert await store.profiles.find(DIGEST) is not None

    in_store(tmp_path / "store.db", work)


def test_what_a_plan_needs_that_is_there_stays(place: Path | str) -> None:
    """However long ago it was used: a dry run may wait, and a long run be disrupted."""
    profile = a_profile()

    async def work(store: Store) -> None:
        occasion = Occasion(
            plan_uid="uid", generation=1, round=0, profile_digest=digest_of(profile)
        )
        asked = await store.questions.put(occasion, a_problem())
        await store.profiles.save(profile, 1.0)
        await store.profiles.save(a_profile(request_key=GONE, tokens_per_sample=1), 1.0)
        for digest in (asked.digest, GONE):
            await store.within("team").answers.save(digest, an_answer(1))
        assert await store.forget_unused(1e12) == 2
        assert await store.profiles.known(DIGEST) is not None
        assert await store.within("team").answers.find(asked.digest) is not None
        await store.forget("uid")
        assert await store.forget_unused(1e12) == 2
        assert await store.profiles.known(DIGEST) is None

    in_store_at(place, work, lambda: DAY_S)
