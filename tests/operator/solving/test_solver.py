"""Searches beside the loop, in processes of their own."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from plimsoll_operator.names import PlanKey
from plimsoll_operator.solving import search_process
from plimsoll_operator.solving.search_process import MOST_BYTES
from plimsoll_operator.solving.solve_cache import First, SolveCache, search_once
from plimsoll_operator.solving.solver import MOST_TRIES, Solver
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.questions import Occasion, StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.solution import Solution
from tests.support.cluster_objects import OWNER
from tests.support.questions import a_question
from tests.support.stores import in_store

KEY = (OWNER.namespace, OWNER.name)
PATIENCE_S = 240.0
"""For a process to start and to import; a search takes less than a second."""


class Bench:
    """A solver, a question, and what was heard of both."""

    def __init__(self, store: Store, asked: StoredQuestion) -> None:
        """Begin nothing yet; `at_bench` closes the solver."""
        self.store, self.asked = store, asked
        self.told: asyncio.Queue[PlanKey] = asyncio.Queue()
        self.searches_s: list[float] = []
        self.solver = Solver(
            1, self.told.put_nowait, self.searches_s.append, first_pause_s=0.0
        )
        self.solve_cache = SolveCache(store)

    def start(self) -> None:
        """Ask."""
        self.solver.start(KEY, self.solve_cache, self.asked)

    @property
    def refused(self) -> str:
        """Why the question is not asked any more; empty where it is."""
        return self.solve_cache.refused.get(self.asked.digest, "")

    async def heard(self) -> PlanKey:
        """Wait until a plan is told of."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.told.get()

    async def is_answered(self) -> bool:
        """Whether there is a plan."""
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


def too_long(
    problem: Problem, known: Mapping[str, Replay], first: First
) -> StoredAnswer:
    """Be a search that takes a minute."""
    time.sleep(60)
    return search_once(problem, known, first)


def too_large(
    problem: Problem, known: Mapping[str, Replay], first: First
) -> StoredAnswer:
    """Be a search that takes all memory that it can get."""
    held = bytearray(MOST_BYTES)
    assert held
    return search_once(problem, known, first)


def faulty(problem: Problem, known: Mapping[str, Replay], first: First) -> StoredAnswer:
    """Be a search with a fault."""
    raise KeyError(problem.global_batch_size, len(known), first)


def searching_by(
    search: Callable[..., StoredAnswer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the processes search in another way."""
    monkeypatch.setattr(search_process, "search_once", search)


async def a_process() -> BaseProcess:
    """Wait until a process searches."""
    async with asyncio.timeout(PATIENCE_S):
        while not multiprocessing.active_children():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    return multiprocessing.active_children()[0]


async def ended(process: BaseProcess) -> None:
    """Wait until a process has ended; the pool's thread waits for it as well."""
    async with asyncio.timeout(PATIENCE_S):
        while process.is_alive():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


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
        assert "a search came to nothing (try 1)" in caplog.text
        await asyncio.sleep(0)
        bench.start()
        assert await bench.heard() == KEY
        assert await bench.is_answered()

    at_bench(tmp_path, work)


def test_a_search_that_takes_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is ended; the next search has another one."""
    searching_by(too_long, monkeypatch)

    async def work(bench: Bench) -> None:
        bench.solver = Solver(1, bench.told.put_nowait, search_s=1.0)
        bench.start()
        process = await a_process()
        assert await bench.heard() == KEY
        assert bench.refused.startswith("the search takes more than 1 s: lower search.")
        await ended(process)
        monkeypatch.undo()
        bench.solver = Solver(1, bench.told.put_nowait)
        bench.start()
        await bench.heard()
        assert await bench.is_answered()

    at_bench(tmp_path, work)


def test_a_search_that_takes_too_much_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the machine, or the container, has none left."""
    searching_by(too_large, monkeypatch)

    async def work(bench: Bench) -> None:
        bench.start()
        await bench.heard()
        assert bench.refused.startswith("the search takes more memory than it may: ")

    at_bench(tmp_path, work)


def test_a_search_with_a_fault_is_tried_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its plan says what the fault is, and nobody computes for it any more."""
    searching_by(faulty, monkeypatch)

    async def work(bench: Bench) -> None:
        for number in range(MOST_TRIES):
            assert not bench.refused, number
            bench.start()
            await bench.heard()
            await asyncio.sleep(0)
        assert bench.refused.startswith("the search came to nothing 3 times, the last")
        assert "KeyError" in bench.refused

    at_bench(tmp_path, work)


def test_a_search_that_nobody_asks_for_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits behind it goes on."""
    searching_by(too_long, monkeypatch)

    async def work(bench: Bench) -> None:
        bench.start()
        process = await a_process()
        bench.solver.leave(KEY)
        await ended(process)
        monkeypatch.undo()
        bench.start()
        assert await bench.heard() == KEY
        assert await bench.is_answered()
        assert bench.told.empty()

    at_bench(tmp_path, work)


def test_who_ends_leaves_no_process_behind(tmp_path: Path) -> None:
    """A search may take minutes; nobody waits for it."""
    found: list[BaseProcess] = []

    async def work(bench: Bench) -> None:
        bench.start()
        found.append(await a_process())

    at_bench(tmp_path, work)
    [process] = found
    asyncio.run(ended(process))
