"""Lets searches run beside the loop, in processes of their own.

In: questions. Out: answers in the store, and a word to whoever waits for one. A search
that computes for a minute holds up no other plan; one that is asked for again while it
runs is not begun twice; one that nobody asks for any more is ended. A search may take
so much time and memory and no more, and so many tries: then it is refused, and its plan
says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from plimsoll_operator.errors import StoreError
from plimsoll_operator.names import PlanKey
from plimsoll_operator.solving.revise_cache import ReviseCache, ReviseQuestion
from plimsoll_operator.solving.search_process import SearchProcess
from plimsoll_operator.solving.solve_cache import First, SolveCache
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.revising.revise import Stays

logger = logging.getLogger(__name__)
SEARCH_S: Final = 600.0
"""A search of 100 layers on up to 4,096 GPUs takes 20 s on one core."""
MOST_TRIES: Final = 3
"""Of a search that ends without an answer."""
FIRST_PAUSE_S: Final = 5.0
"""Before the second try; doubled before each further one."""
STORE_PAUSE_S: Final = 30.0
"""Before a search is asked for again whose answer could not be stored."""
NARROW: Final = (
    "lower search.maxGPUs, set search.maxMicroBatch, or take a global batch of fewer "
    "divisors"
)


class Solver:
    """Runs searches."""

    def __init__(
        self,
        num_processes: int,
        done: Callable[[PlanKey], None],
        took: Callable[[float], None] = lambda _: None,
        *,
        search_s: float = SEARCH_S,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        """Start no process before it is needed.

        `done` is called with the plan whose answer has come, `took` with the seconds
        of each search. One that came to nothing is tried again after `first_pause_s`.
        """
        self._done = done
        self._took = took
        self._search_s, self._first_pause_s = search_s, first_pause_s
        self._processes = [SearchProcess() for _ in range(num_processes)]
        self._free = asyncio.LifoQueue[SearchProcess]()
        for process in self._processes:
            self._free.put_nowait(process)
        self._running: dict[PlanKey, tuple[str, asyncio.Task[None]]] = {}
        """By plan: the digest of its question, and who answers it."""
        self._failures: Counter[str] = Counter()
        """By digest of a question: searches that came to nothing."""

    def start(
        self, key: PlanKey, solve_cache: SolveCache, asked: StoredQuestion
    ) -> None:
        """Begin to answer a question, unless that is under way.

        What the plan asked before is left.
        """
        digest, _ = self._running.get(key, ("", None))
        if digest == asked.digest:
            return
        self.leave(key)
        task = asyncio.create_task(self._answer(key, solve_cache, asked))
        self._running[key] = asked.digest, task
        task.add_done_callback(lambda _: self._forget(key, task))

    def revise(
        self,
        key: PlanKey,
        plan_uid: str,
        cache: ReviseCache,
        asked: ReviseQuestion,
        problem: Problem,
    ) -> None:
        """Begin to look for a revision of a plan that runs; it has asked for no other.

        What was searched for it before is left.
        """
        self.leave(key)
        task = asyncio.create_task(self._revise(key, plan_uid, cache, asked, problem))
        self._running[key] = "", task
        task.add_done_callback(lambda _: self._forget(key, task))

    async def _revise(
        self,
        key: PlanKey,
        plan_uid: str,
        cache: ReviseCache,
        asked: ReviseQuestion,
        problem: Problem,
    ) -> None:
        """Look for a revision; one that is not found in time is none."""
        try:
            async with self._process() as process:
                answer = await cache.answer(asked, problem, process.run)
        except Exception as error:  # noqa: BLE001 - the plan runs on as it is
            text = f"{type(error).__name__}: {error}"
            logger.warning("a search for a revision came to nothing: %s", text)
            answer = Stays(reason=f"the search came to nothing: {text}")
        cache.answered(plan_uid, asked, answer, time.time())
        self._done(key)

    def leave(self, key: PlanKey) -> None:
        """End what is searched for a plan: nobody asks for it any more."""
        _, task = self._running.pop(key, ("", None))
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Leave what is under way; it is asked for again by whoever decides next."""
        for key in tuple(self._running):
            self.leave(key)
        for process in self._processes:
            process.end()

    def _forget(self, key: PlanKey, task: asyncio.Task[None]) -> None:
        """Let go of a task that has ended."""
        if self._running.get(key, ("", None))[1] is task:
            del self._running[key]

    async def _answer(
        self, key: PlanKey, solve_cache: SolveCache, asked: StoredQuestion
    ) -> None:
        """Answer a question, and say so."""
        try:
            await solve_cache.solve(asked, self._search)
        except StoreError as error:
            logger.warning("a search waits for the store: %s", error)
            await asyncio.sleep(STORE_PAUSE_S)
        except TimeoutError:
            text = f"the search takes more than {self._search_s:g} s: {NARROW}"
            solve_cache.refused[asked.digest] = text
        except MemoryError:
            text = f"the search takes more memory than it may: {NARROW}"
            solve_cache.refused[asked.digest] = text
        except Exception as error:  # noqa: BLE001 - whatever ends a search, its plan says so
            await self._failed(solve_cache, asked.digest, error)
        else:
            self._failures.pop(asked.digest, None)
        self._done(key)

    async def _failed(
        self, solve_cache: SolveCache, digest: str, error: Exception
    ) -> None:
        """Let a search that came to nothing be tried again later, or no more."""
        self._failures[digest] += 1
        number = self._failures[digest]
        text = f"{type(error).__name__}: {error}"
        logger.warning("a search came to nothing (try %d): %s", number, text)
        if number < MOST_TRIES:
            await asyncio.sleep(self._first_pause_s * 2.0 ** (number - 1))
            return
        del self._failures[digest]
        solve_cache.refused[digest] = (
            f"the search came to nothing {number} times, the last time by {text}: "
            "report it, and edit the plan or start the operator anew to try again"
        )

    async def _search(
        self, problem: Problem, known: Mapping[str, Replay], first: First
    ) -> StoredAnswer:
        """Search in a process that is free, once there is one."""
        async with self._process() as process:
            began_s = asyncio.get_running_loop().time()
            found = await process.search(problem, known, first)
            self._took(asyncio.get_running_loop().time() - began_s)
            return found

    @asynccontextmanager
    async def _process(self) -> AsyncGenerator[SearchProcess]:
        """A process that is free, once there is one, for as long as a search may take.

        Raises:
            TimeoutError: it takes longer.
        """
        process = await self._free.get()
        try:
            async with asyncio.timeout(self._search_s):
                yield process
        finally:
            self._free.put_nowait(process)
