"""Answers, by the digest of the problem."""

from __future__ import annotations

from pathlib import Path

from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.store import Store
from tests.support.builders import DIGEST, a_solution, an_infeasible
from tests.support.stores import in_store

UNCERTIFIED = StoredAnswer(
    answer=a_solution(), unreplayed=DIGEST, is_certified=False, num_rounds=1
)
CERTIFIED = StoredAnswer(
    answer=a_solution(), unreplayed="", is_certified=True, num_rounds=2
)
REFUSED = StoredAnswer(
    answer=an_infeasible(), unreplayed="", is_certified=False, num_rounds=0
)


def test_the_latest_answer_counts(place: Path | str) -> None:
    """A plan before its replay, after it, and no plan at all: each as it was."""

    async def work(store: Store) -> None:
        assert await store.answers.find(DIGEST) is None
        for answer in (UNCERTIFIED, CERTIFIED, REFUSED):
            await store.answers.save(DIGEST, answer)
            assert await store.answers.find(DIGEST) == answer

    in_store(place, work)
