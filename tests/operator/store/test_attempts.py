"""Attempts: plans of record, and what became of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plimsoll_operator.rules.observed_state import Attempt, Ending
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.plan import Phase
from tests.support.builders import DIGEST, a_plan
from tests.support.stores import at_once, begin_attempt, in_store, plan_of_record


def test_the_first_plan_of_an_attempt_is_of_record(place: Path | str) -> None:
    """Who records later is given that one; other plans have attempts of their own."""
    first, later = a_plan(), a_plan(revision=2)

    async def work(store: Store) -> None:
        assert await store.attempts.of("uid") == ()
        assert await begin_attempt(store, "uid", 1, first, now_s=5.0) == first
        assert await begin_attempt(store, "uid", 1, later, now_s=6.0) == first
        assert await begin_attempt(store, "other", 1, later, now_s=6.0) == later
        assert await store.attempts.of("uid") == (
            StoredAttempt(
                number=1,
                plan=first,
                plan_digest=digest_of(first),
                problem_digest=DIGEST,
                recorded_s=5.0,
            ),
        )

    in_store(place, work)


def test_an_attempt_ends_once(place: Path | str) -> None:
    """The first ending stays, with rank and phase; attempts come oldest first."""

    async def work(store: Store) -> None:
        for number in (2, 1):
            await begin_attempt(store, "uid", number)
        full = Attempt(
            number=1,
            ending=Ending.OUT_OF_MEMORY,
            ended_s=7.5,
            generation=2,
            message="rank 3 ran out",
            rank=3,
            phase=Phase.BACKWARD,
        )
        await store.attempts.end("uid", full)
        later = replace(full, ending=Ending.DISRUPTED, ended_s=8.0, message="later")
        await store.attempts.end("uid", later)
        assert await store.attempts.of("uid") == (
            StoredAttempt(
                number=1,
                plan=a_plan(),
                plan_digest=digest_of(a_plan()),
                problem_digest=DIGEST,
                ending=Ending.OUT_OF_MEMORY,
                ended_s=7.5,
                generation=2,
                message="rank 3 ran out",
                rank=3,
                phase=Phase.BACKWARD,
            ),
            StoredAttempt(
                number=2,
                plan=a_plan(),
                plan_digest=digest_of(a_plan()),
                problem_digest=DIGEST,
            ),
        )

    in_store(place, work)


def test_writers_that_come_together_agree_on_one_plan(place: Path | str) -> None:
    """Of four processes one wins, and the others are told its plan."""
    told = at_once(plan_of_record, [(place, size) for size in (1, 2, 4, 1)])
    assert len(set(told)) == 1

    async def work(store: Store) -> None:
        [attempt] = await store.attempts.of("uid")
        assert attempt.plan.micro_batch == told[0]

    in_store(place, work)
