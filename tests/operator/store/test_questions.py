"""Questions, by the occasion on which they are put."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plimsoll_operator.store.questions import Occasion, StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import digest_of
from tests.support.builders import DIGEST, a_problem
from tests.support.stores import in_store

FIRST = Occasion(plan_uid="uid", generation=1, round=0, profile_digest=DIGEST)


def test_a_question_that_was_put_stays(place: Path | str) -> None:
    """It is found with its digest, on its occasion alone."""

    async def work(store: Store) -> None:
        assert await store.questions.find(FIRST) is None
        put = await store.questions.put(FIRST, a_problem())
        assert put == StoredQuestion(problem=a_problem(), digest=digest_of(a_problem()))
        assert await store.questions.find(FIRST) == put

    in_store(place, work)


def test_an_edit_a_lesson_and_a_new_profile_ask_anew(place: Path | str) -> None:
    """Each tells questions apart; none is lost, and the latest comes first."""
    occasions = (
        FIRST,
        replace(FIRST, generation=2),
        replace(FIRST, round=1),
        replace(FIRST, profile_digest=DIGEST.replace("0", "1")),
    )

    async def work(store: Store) -> None:
        other = await store.questions.put(replace(FIRST, plan_uid="x"), a_problem())
        put = [
            await store.questions.put(occasion, a_problem(global_batch_size=size))
            for size, occasion in enumerate(occasions, start=1)
        ]
        assert [await store.questions.find(one) for one in occasions] == put
        assert await store.questions.of("uid") == tuple(reversed(put))
        assert await store.questions.of("x") == (other,)

    in_store(place, work)


def test_questions_since_an_edit_are_listed_in_the_order_they_were_put(
    place: Path | str,
) -> None:
    """By digest, those of all profiles, and one that was put twice counts twice."""
    rounds = [
        FIRST,
        replace(FIRST, round=1, profile_digest=DIGEST.replace("0", "1")),
        replace(FIRST, round=2),
    ]
    sizes = [2, 1, 2]

    async def work(store: Store) -> None:
        await store.questions.put(replace(FIRST, generation=2), a_problem())
        await store.questions.put(replace(FIRST, plan_uid="x"), a_problem())
        put = [
            await store.questions.put(occasion, a_problem(global_batch_size=size))
            for occasion, size in zip(rounds, sizes, strict=True)
        ]
        found = await store.questions.digests("uid", 1)
        assert found == tuple(one.digest for one in put)
        assert len(set(found)) == 2
        assert await store.questions.digests("uid", 3) == ()

    in_store(place, work)
