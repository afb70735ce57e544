"""Threads of gloo are waited for until they hold no message."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate

from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.torch_internals.late_threads import (
    THREADS,
    is_at_work,
    states_of_threads,
)
from tests.support.ranks import run_ranks

WAIT_S = 20.0


@contextmanager
def another_thread(run: Callable[[], object]) -> Iterator[int]:
    """Open the system call of a thread that runs this."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    call = os.open(THREADS / str(thread.native_id) / "syscall", os.O_RDONLY)
    try:
        yield call
    finally:
        os.close(call)


def comes_to(state: bool, call: int) -> bool:
    """Whether a thread is at work, or idle, before long."""
    end_s = time.monotonic() + WAIT_S
    while is_at_work(call) is not state:
        if time.monotonic() > end_s:
            return False
        time.sleep(0.001)
    return True


def test_a_thread_that_waits_to_be_called_is_idle() -> None:
    """For however long; one that has ended is idle as well."""
    called = threading.Lock()
    called.acquire()
    with another_thread(called.acquire) as call:
        assert comes_to(False, call)
        assert not any(is_at_work(call) for _ in range(100))
        called.release()
        assert comes_to(False, call)


def test_a_thread_that_computes_or_wants_pythons_lock_is_at_work() -> None:
    """Whichever of the two it does when it is looked at."""
    ends = threading.Event()

    def compute() -> None:
        while not ends.is_set():
            sum(range(1000))

    with another_thread(compute) as call:
        assert comes_to(True, call)
        looks = [is_at_work(call) for _ in range(100)]
        ends.set()
        assert sum(looks) > len(looks) / 2  # not all: see `is_at_work`
        assert comes_to(False, call)


def idle_after_a_sum() -> tuple[int, list[bool], float]:
    """Number of threads of gloo, whether they work behind a sum, and what it is."""
    world = join_world(1, 1, torch.device("cpu"), num_parts=2)
    assert world.tensor_group is not None
    part = torch.full((1000,), 1.0 + dist.get_rank())
    whole = DTensor.from_local(part, world.tensor_mesh, [Partial()])
    found = whole.redistribute(placements=[Replicate()]).to_local()
    states = states_of_threads()
    return len(states), list(map(is_at_work, states)), float(found[0])


def test_a_sum_of_a_tensor_group_is_over_when_it_returns() -> None:
    """Threads of gloo are found by name, and wait again."""
    for num_threads, at_work, total in run_ranks(idle_after_a_sum, 2):
        assert num_threads > 0
        assert not any(at_work)
        assert total == 1 + 2
