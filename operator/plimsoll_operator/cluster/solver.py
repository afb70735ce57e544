"""Lets searches run beside the loop, in processes of their own.

In: questions. Out: answers in the store, and a word to whoever waits for one. A search
that computes for a minute holds up no other plan; one that is asked for again while it
runs is not begun twice; a process that dies is replaced, and the search asked for again
at the next look.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Final

from plimsoll_operator.asking import Asking, search_once
from plimsoll_operator.cluster.children import Owner
from plimsoll_operator.cluster.work_queue import Key
from plimsoll_operator.errors import StoreError
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay

logger = logging.getLogger(__name__)
MOST_SEARCHES_OF_A_PROCESS: Final = 100
"""After which it is replaced, so that what a search leaves behind is let go."""


class Solver:
    """Runs searches."""

    def __init__(
        self,
        num_processes: int,
        done: Callable[[Key], None],
        took: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Start no process before it is needed.

        Args:
            num_processes: that search at a time.
            done: told of the plan whose answer has come.
            took: told of the seconds of each search.
        """
        self._num_processes = num_processes
        self._done = done
        self._took = took
        self._pool: ProcessPoolExecutor | None = None
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By the plan's uid and the question's digest."""

    def start(self, owner: Owner, asking: Asking, asked: StoredQuestion) -> None:
        """Begin to answer a question, unless that is under way."""
        place = owner.uid, asked.digest
        if place in self._running:
            return
        task = asyncio.create_task(self._answer(owner, asking, asked))
        self._running[place] = task
        task.add_done_callback(lambda _: self._running.pop(place, None))

    async def close(self) -> None:
        """Leave what is under way; it is asked for again by whoever decides next."""
        for task in tuple(self._running.values()):
            task.cancel()
        if self._pool is not None:
            for process in tuple(self._pool._processes.values()):  # noqa: SLF001 - no public way to end one that computes
                process.terminate()
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _answer(
        self, owner: Owner, asking: Asking, asked: StoredQuestion
    ) -> None:
        """Answer a question, and say so."""
        try:
            await asking.solve(asked, self._search)
        except (BrokenProcessPool, StoreError) as error:
            self._pool = None
            logger.warning("a search came to nothing, and is asked again: %s", error)
        finally:
            self._done((owner.namespace, owner.name))

    async def _search(
        self, problem: Problem, known: Mapping[str, Replay]
    ) -> StoredAnswer:
        """Search in a process of the pool."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._num_processes,
                mp_context=multiprocessing.get_context("spawn"),
                max_tasks_per_child=MOST_SEARCHES_OF_A_PROCESS,
            )
        events = asyncio.get_running_loop()
        began_s = events.time()
        found = await events.run_in_executor(self._pool, search_once, problem, known)
        self._took(events.time() - began_s)
        return found
