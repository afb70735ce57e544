"""Threads of gloo that hold messages longer than their rank needs them.

A thread of gloo wakes the rank's own, and lets go of the message next, for which it
often needs Python's lock. Where the rank goes on meanwhile, it holds one message more,
or two, as a group has two threads (docs/decisions/0028).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch.distributed._functional_collectives as functional
from torch import Tensor

THREADS = Path("/proc/self/task")
NAME = "pt_gloo_runloop"
FUTEX_COMMANDS, FUTEX_WAIT_BITSET = 0x7F, 9
"""Of linux/futex.h; glibc waits so for conditions and semaphores."""
NAP_S = 2e-5
"""Without Python's lock, so that others may have it."""
MOST_S = 1.0
"""For one message; then the rank goes on, and the upper bound has room for it."""


def wait_for_threads() -> None:
    """Let collectives of DTensors be over when they return, and threads of gloo idle.

    From now on in this process, and for the groups that there are. By default torch
    waits where a result is used; what enters is held until then.
    """
    states = cache(states_of_threads)  # they take their name as they begin

    def wait(tensor: Tensor) -> Tensor:
        found: Tensor = functional.wait_tensor(tensor)  # type: ignore[no-untyped-call]
        end_s = time.monotonic() + MOST_S
        while any(map(is_at_work, states())) and time.monotonic() < end_s:
            time.sleep(NAP_S)
        return found

    functional._maybe_wrap_tensor = wait  # type: ignore[assignment]


def states_of_threads() -> Sequence[int]:
    """Open files with the system calls that gloo's threads in this process are in."""
    found = []
    with suppress(OSError):  # where a sandbox hides them
        for thread in THREADS.iterdir():
            if (thread / "comm").read_text().strip() == NAME:
                call = os.open(thread / "syscall", os.O_RDONLY | os.O_CLOEXEC)
                found.append(call)
    return found


def is_at_work(state: int) -> bool:
    """Whether a thread does anything but wait, for however long, to be called.

    One that waits for Python's lock does so for a time, which is the fourth argument;
    one that waits for a mutex, as within that lock, makes another call of `futex`.
    One that had the lock and was asked for it passes for idle until another has it.
    """
    try:
        call = os.pread(state, 256, 0).split()
    except OSError:  # it has ended, or a sandbox hides it
        return False
    if len(call) < 5:  # noqa: PLR2004 - number and arguments; or it is running
        return True
    _, _, operation, _, timeout, *_ = call
    waits = int(operation, 16) & FUTEX_COMMANDS == FUTEX_WAIT_BITSET
    return not (waits and timeout == b"0x0")
