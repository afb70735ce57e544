"""Home's own TrainingPlans."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_operator.api.status import Status
from plimsoll_operator.errors import StoreError
from plimsoll_operator.rules.observed_state import Attempt, Ending
from plimsoll_operator.store.questions import Occasion
from plimsoll_operator.store.rehearsals import AskedRehearsal
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import digest_of
from tests.support.builders import (
    DIGEST,
    a_peak,
    a_plan,
    a_problem,
    an_observation,
    an_offer,
)
from tests.support.specs import a_spec
from tests.support.stores import begin_attempt, in_store

OFFERS = (an_offer(),)


def test_a_plan_begins_empty(place: Path | str) -> None:
    """Its first generation, without status, under a uid of its own."""

    async def work(store: Store) -> None:
        made = await store.plans.create("tiny", a_spec(), OFFERS, "/code", 3.0)
        assert (made.name, made.generation, made.created_s) == ("tiny", 1, 3.0)
        assert (made.spec, made.status) == (a_spec(), Status())
        assert (made.offers, made.folder) == (OFFERS, "/code")
        assert not made.is_suspended
        assert await store.plans.find("tiny") == made
        assert await store.plans.find("other") is None

    in_store(place, work)


def test_a_later_plan_takes_the_name(place: Path | str) -> None:
    """The earlier one is not listed any more, and its attempts stay."""

    async def work(store: Store) -> None:
        first = await store.plans.create("tiny", a_spec(), (), "/code", 1.0)
        await begin_attempt(store, first.uid, 1, now_s=1.5)
        other = await store.plans.create("other", a_spec(), (), "/code", 2.0)
        second = await store.plans.create("tiny", a_spec(), (), "/code", 3.0)
        assert first.uid != second.uid
        assert await store.plans.find("tiny") == second
        assert await store.plans.all() == (second, other)
        assert len(await store.attempts.of(first.uid)) == 1

    in_store(place, work)


def test_another_spec_is_another_generation(place: Path | str) -> None:
    """Other machines are as well; the same again is not, wherever its code lies."""

    async def work(store: Store) -> None:
        made = await store.plans.create("tiny", a_spec(), OFFERS, "/code", 1.0)
        same = await store.plans.edit(made.uid, a_spec(), OFFERS, "/moved")
        assert (same.generation, same.offers, same.folder) == (1, OFFERS, "/moved")
        other = await store.plans.edit(made.uid, a_spec(), (), "/code")
        assert (other.generation, other.offers) == (2, ())
        edited = await store.plans.edit(made.uid, a_spec(suspend=True), OFFERS, "/code")
        assert (edited.generation, edited.spec) == (3, a_spec(suspend=True))
        assert await store.plans.find("tiny") == edited

    in_store(place, work)


def test_status_and_suspension_are_kept(place: Path | str) -> None:
    """Each leaves the other as it is."""
    status = Status(attempt=2, start_time="2026-11-21T09:30:00Z")

    async def work(store: Store) -> None:
        made = await store.plans.create("tiny", a_spec(), (), "/code", 1.0)
        await store.plans.save_status(made.uid, status)
        await store.plans.set_suspended(made.uid, True)
        found = await store.plans.find("tiny")
        assert found is not None
        assert (found.status, found.is_suspended) == (status, True)
        await store.plans.set_suspended(made.uid, False)
        found = await store.plans.find("tiny")
        assert found is not None
        assert (found.status, found.is_suspended) == (status, False)

    in_store(place, work)


def test_a_plan_is_told_once_it_was(place: Path | str) -> None:
    """Only of such a one another begins by the same words."""

    async def work(store: Store) -> None:
        made = await store.plans.create("tiny", a_spec(), (), "/code", 1.0)
        assert not made.was_told
        await store.plans.set_told(made.uid)
        found = await store.plans.find("tiny")
        assert found is not None
        assert found.was_told

    in_store(place, work)


def the_first(plan_uid: str) -> Occasion:
    """Occasion of a plan's first question."""
    return Occasion(plan_uid=plan_uid, generation=1, round=0, profile_digest=DIGEST)


def test_what_was_observed_outlives_its_plan(place: Path | str) -> None:
    """Attempts and questions go with the plan; nothing of another plan does."""

    async def work(store: Store) -> None:
        made = await store.plans.create("tiny", a_spec(), (), "/code", 1.0)
        for uid in (made.uid, "other"):
            await begin_attempt(store, uid, 1, now_s=1.0)
            await store.questions.put(the_first(uid), a_problem())
            await store.observations.save(uid, an_observation(), a_peak(), 1, 0.0)
            asked = AskedRehearsal(plan=a_plan(), capacity_bytes=1)
            await store.rehearsals.ask(uid, asked)
        assert [one.uid for one in await store.plans.of_name("tiny")] == [made.uid]
        await store.plans.delete("tiny")
        assert await store.plans.find("tiny") is None
        assert await store.attempts.of(made.uid) == ()
        assert await store.questions.of(made.uid) == ()
        digest = digest_of(a_plan())
        assert await store.rehearsals.asked(made.uid, digest) is None
        assert await store.rehearsals.asked("other", digest) is not None
        assert await store.observations.of(made.uid, 1) == (an_observation(),)
        assert len(await store.attempts.of("other")) == 1
        assert len(await store.questions.of("other")) == 1

    in_store(place, work)


def test_a_plan_that_is_deleted_takes_no_more(place: Path | str) -> None:
    """What comes late is dropped; an edit, which needs an answer, is refused."""

    async def work(store: Store) -> None:
        made = await store.plans.create("tiny", a_spec(), (), "/code", 1.0)
        await store.plans.delete("tiny")
        await store.plans.save_status(made.uid, Status(attempt=1))
        await store.plans.set_suspended(made.uid, True)
        await store.attempts.end(
            made.uid, Attempt(number=1, ending=Ending.DONE, ended_s=2.0, generation=1)
        )
        with pytest.raises(StoreError, match=f"the plan {made.uid} was deleted"):
            await store.plans.edit(made.uid, a_spec(), (), "/code")
        with pytest.raises(StoreError, match=f"the plan {made.uid} was deleted"):
            await store.plans.open_again(made.uid)
        assert await store.plans.all() == ()

    in_store(place, work)
