"""Finds what holds an event loop: callbacks that compute for longer than they may.

The time is that of the loop's own thread on a processor: what others compute beside it
counts for nothing. A second thread notes where the loop was while it computed.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

MOST_CPU_S = 0.05
"""Of one callback: at 20 of them a second, probes and reports are still answered."""
SAMPLE_S = 0.01


@contextmanager
def nothing_holds_the_loop(most_cpu_s: float = MOST_CPU_S) -> Iterator[None]:
    """Fail where a callback of a loop of this thread computes for too long.

    Raises:
        AssertionError: it did; with the stack in the middle of it.
    """
    held: list[str] = []
    latest = [""]
    over, thread = threading.Event(), threading.get_ident()
    run: Any = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began_s = time.thread_time()
        latest[0] = ""
        run(handle)
        took_s = time.thread_time() - began_s
        if took_s > most_cpu_s:
            held.append(f"{took_s * 1e3:.0f} ms of {handle!r}:\n{latest[0]}")

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            stack = traceback.format_stack(sys._current_frames()[thread])
            latest[0] = "".join(stack[-12:])

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    gc.collect()
    gc.freeze()  # what tests have left behind is no part of a loop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield
    over.set()
    sampler.join()
    gc.unfreeze()
    assert not held, "\n".join(held)
