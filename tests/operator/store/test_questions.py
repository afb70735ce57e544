"""Questions, by plan, generation and round."""

from __future__ import annotations

from pathlib import Path

from plimsoll_operator.store.store import Store
from tests.support.builders import a_problem
from tests.support.stores import in_store


def test_a_question_that_was_put_stays(tmp_path: Path) -> None:
    """Who asks later, with other offers, is given the question that counts."""
    first, later = a_problem(), a_problem(global_batch_size=16)

    async def work(store: Store) -> None:
        assert await store.questions.find("uid", 1, 0) is None
        assert await store.questions.save("uid", 1, 0, first) == first
        assert await store.questions.save("uid", 1, 0, later) == first
        assert await store.questions.find("uid", 1, 0) == first

    in_store(tmp_path / "store.db", work)


def test_an_edit_or_another_round_asks_anew(tmp_path: Path) -> None:
    """Plan, generation and round each tell questions apart."""

    async def work(store: Store) -> None:
        places = [("uid", 1, 0), ("uid", 2, 0), ("uid", 1, 1), ("other", 1, 0)]
        for size, place in enumerate(places, start=1):
            await store.questions.save(*place, a_problem(global_batch_size=size))
        for size, place in enumerate(places, start=1):
            found = await store.questions.find(*place)
            assert found == a_problem(global_batch_size=size)

    in_store(tmp_path / "store.db", work)
