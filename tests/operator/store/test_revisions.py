"""Revisions of plans that run: written once, settled once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plimsoll_operator.rules.observed_state import RecordedRevision, RevisionState
from plimsoll_operator.store.revisions import KnownRevision
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import digest_of
from tests.support.builders import a_revision
from tests.support.stores import in_store

REVISION = a_revision()
OFFERED = RecordedRevision(revision=REVISION, made_s=5.0)
FOLLOWED = replace(
    OFFERED,
    state=RevisionState.FOLLOWED,
    settled_s=7.0,
    num_steps=40,
    moved_bytes=8,
    moved_s=0.5,
)


def test_a_revision_is_immutable(place: Path | str) -> None:
    """The first of its number counts; each attempt has its own."""

    async def work(store: Store) -> None:
        revisions = store.revisions
        await revisions.record("uid", 1, REVISION, 5.0)
        await revisions.record("uid", 1, replace(REVISION, step_after_s=1.0), 6.0)
        assert await revisions.of("uid", 1) == (OFFERED,)
        assert await revisions.of("uid", 2) == ()
        assert await revisions.of("another", 1) == ()
        assert await revisions.find("uid", 1, 2) == REVISION
        assert await revisions.find("uid", 1, 3) is None

    in_store(place, work)


def test_what_ranks_made_of_it_stands(place: Path | str) -> None:
    """Whoever says something else later changes nothing."""
    refused = replace(OFFERED, state=RevisionState.REFUSED, settled_s=9.0, message="x")

    async def work(store: Store) -> None:
        await store.revisions.record("uid", 1, REVISION, 5.0)
        await store.revisions.settle("uid", 1, FOLLOWED)
        await store.revisions.settle("uid", 1, refused)
        assert await store.revisions.of("uid", 1) == (FOLLOWED,)
        assert await store.revisions.known("uid", 1) == (
            KnownRevision(
                number=2,
                plan_digest=digest_of(REVISION.plan),
                state=RevisionState.FOLLOWED,
            ),
        )

    in_store(place, work)


def test_revisions_go_with_their_plan(place: Path | str) -> None:
    """Of a cluster, once it is deleted."""

    async def work(store: Store) -> None:
        await store.revisions.record("uid", 1, REVISION, 5.0)
        assert await store.known_plans() == {"uid"}
        await store.forget("uid")
        assert await store.revisions.of("uid", 1) == ()

    in_store(place, work)


def test_attempts_that_ended_with_a_revision_on_offer_are_known(
    place: Path | str,
) -> None:
    """Each once, however many were on offer; settled ones are none."""
    later = replace(REVISION, plan=replace(REVISION.plan, revision=3))

    async def work(store: Store) -> None:
        revisions = store.revisions
        for attempt, revision in ((1, REVISION), (1, later), (2, REVISION), (3, later)):
            await revisions.record("uid", attempt, revision, 5.0)
        await revisions.settle("uid", 2, FOLLOWED)
        found = [await revisions.unanswered("uid", k) for k in (1, 2, 3, 4)]
        assert found == [(), (1,), (1,), (1, 3)]
        assert await revisions.unanswered("another", 4) == ()

    in_store(place, work)
