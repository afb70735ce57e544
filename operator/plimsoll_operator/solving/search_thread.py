"""Lets the search run beside the loop, in a thread that can be left to itself.

In: work that computes and touches nothing else. Out: its result. A thread cannot be
ended; whoever is cancelled while it waits goes on, and the end of the process takes the
thread along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Result of work, or the error that it raises."""
    events = asyncio.get_running_loop()
    done: asyncio.Future[T] = events.create_future()

    def settle(settling: Callable[[], None]) -> None:
        if not done.cancelled():
            settling()

    def run() -> None:
        try:
            settling = partial(done.set_result, work())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            settling = partial(done.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            events.call_soon_threadsafe(settle, settling)

    Thread(target=run, daemon=True).start()
    return await done
