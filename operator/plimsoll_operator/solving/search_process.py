"""One process that searches, and is replaced when it dies or is not wanted any more.

In: a problem. Out: its answer. Called by `solver`, one search at a time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Final, TypeVar

from plimsoll_operator.solving.solve_cache import First, search_once
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay

T = TypeVar("T")
MOST_SEARCHES: Final = 100
"""After which a process is replaced, so that what a search leaves behind is let go."""
MOST_BYTES: Final = 5 * 2**29
"""Of memory: 100 different layers on up to 512 GPUs by T = 1, 2, 4 and 8 take 2.1 GiB.
A search that wants more has a `MemoryError`, and does not bring down the container."""


class SearchProcess:
    """Searches, one after the other."""

    def __init__(self) -> None:
        """Start nothing before it is needed."""
        self._pool: ProcessPoolExecutor | None = None

    async def search(
        self, problem: Problem, known: Mapping[str, Replay], first: First
    ) -> StoredAnswer:
        """Search, with the replays that are known; see `run`."""
        return await self.run(partial(search_once, problem, known, first))

    async def run(self, work: Callable[[], T]) -> T:
        """Compute; whoever does not wait for the end ends the process.

        Raises:
            MemoryError: the search takes more than it may.
            BrokenProcessPool: the process has died.
        """
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                max_workers=1,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=resource.setrlimit,
                initargs=(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES)),
                max_tasks_per_child=MOST_SEARCHES,
            )
        events = asyncio.get_running_loop()
        try:
            return await events.run_in_executor(self._pool, work)
        except (asyncio.CancelledError, BrokenProcessPool, MemoryError):
            self.end()
            raise

    def end(self) -> None:
        """End the process, whatever it computes."""
        if self._pool is None:
            return
        for process in tuple((self._pool._processes or {}).values()):  # noqa: SLF001 - no public way to end one that computes
            process.kill()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None
