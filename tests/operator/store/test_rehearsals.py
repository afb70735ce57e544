"""Rehearsals of each plan: asked for, then with their result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll_operator.store.rehearsals import AskedRehearsal
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.rehearsal import Rehearsal
from tests.support.builders import a_failed_rehearsal, a_plan, a_rehearsal
from tests.support.stores import in_store

ASKED = AskedRehearsal(plan=a_plan(), capacity_bytes=2**40)
DIGEST = digest_of(a_plan())


def of_plan(found: Rehearsal) -> Rehearsal:
    """Make a rehearsal one of the plan that was asked for."""
    return replace(found, observation=replace(found.observation, plan_digest=DIGEST))


FITS, FAILED = of_plan(a_rehearsal()), of_plan(a_failed_rehearsal())


def test_what_was_asked_for_has_no_result_yet(place: Path | str) -> None:
    """It is there with all that its result is learned from; the first asker counts."""

    async def work(store: Store) -> None:
        assert await store.rehearsals.asked("uid", DIGEST) is None
        await store.rehearsals.ask("uid", ASKED)
        await store.rehearsals.ask("uid", replace(ASKED, capacity_bytes=1))
        assert await store.rehearsals.asked("uid", DIGEST) == ASKED
        assert await store.rehearsals.find("uid", DIGEST) is None
        assert not await store.rehearsals.ran_out("uid", DIGEST)

    in_store(place, work)


@pytest.mark.parametrize(("first", "second"), [(FITS, FAILED), (FAILED, FITS)])
def test_the_first_result_stays(
    first: Rehearsal, second: Rehearsal, place: Path | str
) -> None:
    """A later one of the same plan changes nothing, nor does asking again."""

    async def work(store: Store) -> None:
        await store.rehearsals.ask("uid", ASKED)
        await store.rehearsals.save("uid", first)
        await store.rehearsals.save("uid", second)
        await store.rehearsals.ask("uid", ASKED)
        assert await store.rehearsals.find("uid", DIGEST) == first
        assert await store.rehearsals.ran_out("uid", DIGEST) is not first.fits

    in_store(place, work)


def test_nothing_is_taken_over_from_another_plan(place: Path | str) -> None:
    """Its devices are not those of today; nor is kept what nobody asked for."""

    async def work(store: Store) -> None:
        await store.rehearsals.ask("uid", ASKED)
        await store.rehearsals.save("uid", FAILED)
        await store.rehearsals.save("other", FAILED)
        assert await store.rehearsals.find("other", DIGEST) is None
        assert not await store.rehearsals.ran_out("other", DIGEST)
        await store.rehearsals.ask("other", ASKED)
        assert await store.rehearsals.find("other", DIGEST) is None

    in_store(place, work)


def test_a_rehearsal_goes_with_its_plan(place: Path | str) -> None:
    """That of another plan stays."""

    async def work(store: Store) -> None:
        for uid in ("uid", "other"):
            await store.rehearsals.ask(uid, ASKED)
        assert await store.known_plans() == {"uid", "other"}
        await store.forget("uid")
        assert await store.rehearsals.asked("uid", DIGEST) is None
        assert await store.rehearsals.asked("other", DIGEST) == ASKED

    in_store(place, work)
