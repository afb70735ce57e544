"""Searches beside the loop, in processes of their own."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from plimsoll_operator.asking import Asking
from plimsoll_operator.cluster.solver import Solver
from plimsoll_operator.cluster.work_queue import Key
from plimsoll_operator.store.questions import Occasion, StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.solution import Solution
from tests.support.cluster_objects import OWNER
from tests.support.questions import a_question
from tests.support.stores import in_store

KEY = (OWNER.namespace, OWNER.name)
PATIENCE_S = 60.0
"""For a process to start and to import; a search takes less than a second."""


class Bench:
    """A solver, a question, and what was heard of both."""

    def __init__(self, store: Store, asked: StoredQuestion) -> None:
        """Begin nothing yet; `at_bench` closes the solver."""
        self.store, self.asked = store, asked
        self.told: asyncio.Queue[Key] = asyncio.Queue()
        self.searches_s: list[float] = []
        self.solver = Solver(1, self.told.put_nowait, self.searches_s.append)
        self.asking = Asking(store)

    def start(self) -> None:
        """Ask."""
        self.solver.start(OWNER, self.asking, self.asked)

    async def heard(self) -> Key:
        """Wait until a plan is told of."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.told.get()

    async def is_answered(self) -> bool:
        """Tell whether there is a plan."""
        found = await self.store.answers.find(self.asked.digest)
        return found is not None and isinstance(found.answer, Solution)


def at_bench(tmp_path: Path, work: Callable[[Bench], Awaitable[None]]) -> None:
    """Put a question, and work on it."""

    async def opened(store: Store) -> None:
        occasion = Occasion(
            plan_uid=OWNER.uid, generation=1, round=0, profile_digest="any"
        )
        bench = Bench(store, await store.questions.put(occasion, a_question()))
        try:
            await work(bench)
        finally:
            await bench.solver.close()

    in_store(tmp_path / "store.db", opened)


async def a_process() -> BaseProcess:
    """Wait until a process searches."""
    async with asyncio.timeout(PATIENCE_S):
        while not multiprocessing.active_children():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    return multiprocessing.active_children()[0]


def test_a_search_that_runs_is_not_begun_twice(tmp_path: Path) -> None:
    """Its answer is in the store before its plan is told of, once."""

    async def work(bench: Bench) -> None:
        bench.start()
        under_way = asyncio.all_tasks()
        bench.start()
        assert asyncio.all_tasks() == under_way
        assert await bench.heard() == KEY
        assert await bench.is_answered()
        assert bench.told.empty()
        assert len(bench.searches_s) == 1

    at_bench(tmp_path, work)


def test_a_process_that_dies_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its plan is told of, without an answer: the next look asks again."""

    async def work(bench: Bench) -> None:
        bench.start()
        (await a_process()).kill()
        assert await bench.heard() == KEY
        assert not await bench.is_answered()
        assert "came to nothing, and is asked again" in caplog.text
        await asyncio.sleep(0)
        bench.start()
        assert await bench.heard() == KEY
        assert await bench.is_answered()

    at_bench(tmp_path, work)


def test_who_ends_leaves_no_process_behind(tmp_path: Path) -> None:
    """A search may take minutes; nobody waits for it."""
    found: list[BaseProcess] = []

    async def work(bench: Bench) -> None:
        bench.start()
        found.append(await a_process())

    at_bench(tmp_path, work)
    [process] = found
    process.join(PATIENCE_S)
    assert not process.is_alive()
