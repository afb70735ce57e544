"""The queue of plans: who comes when, and never to two workers."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from plimsoll_operator.control.work_queue import LEAST_HEAP, LONGEST_PAUSE_S, WorkQueue
from plimsoll_operator.names import PlanKey
from tests.support.drawing import draws

A, B, C = ("ml", "a"), ("ml", "b"), ("vision", "a")


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.now_s = 0.0

    def __call__(self) -> float:
        """Time."""
        return self.now_s


def a_queue(
    clock: Callable[[], float], draw: Callable[[], float] = lambda: 0.0
) -> WorkQueue:
    """Build a queue whose pauses are the longest, unless drawn otherwise."""
    return WorkQueue(clock, draw)


def a_dice() -> Callable[[int], int]:
    """Source of numbers below another one, the same in each run."""
    drawn = itertools.count(1)
    return lambda sides: next(drawn) * 2654435761 % 2**32 * sides // 2**32


def taken(queue: WorkQueue) -> list[PlanKey]:
    """Take all keys that are due."""
    keys: list[PlanKey] = []
    while (key := queue._take_due()) is not None:
        keys.append(key)
    return keys


def test_keys_come_when_they_are_due() -> None:
    """The earliest first, and of equal times the one asked for first."""
    clock = Clock()
    queue = a_queue(clock)
    queue.add_at(C, 5.0)
    queue.add(B)
    queue.add(A)
    assert taken(queue) == [B, A]
    clock.now_s = 4.9
    assert taken(queue) == []
    clock.now_s = 5.0
    assert taken(queue) == [C]


def test_a_key_waits_once() -> None:
    """However often it is asked for; the earliest time wins, in either order."""
    clock = Clock()
    for times in ((3.0, 7.0), (7.0, 3.0)):
        queue = a_queue(clock)
        for at_s in times:
            queue.add_at(A, at_s)
        assert len(queue) == 1
        clock.now_s = 3.0
        assert taken(queue) == [A]
        queue.done(A)
        clock.now_s = 8.0
        assert taken(queue) == []
        clock.now_s = 0.0


def test_what_is_seen_during_work_is_looked_at_once_more() -> None:
    """After it, and not beside it; once, and at the earliest time asked for."""
    clock = Clock()
    queue = a_queue(clock)
    queue.add(A)
    assert taken(queue) == [A]
    queue.add_at(A, 60.0)
    queue.add(A)
    queue.add(A)
    assert taken(queue) == []
    queue.done(A)
    assert taken(queue) == [A]
    queue.done(A)
    clock.now_s = 100.0
    assert taken(queue) == []


def test_failures_are_tried_again_ever_later() -> None:
    """After 1 s, doubled up to 300 s; a pass that goes well begins anew."""
    clock = Clock()
    queue = a_queue(clock)
    queue.add(A)
    pauses = []
    for _ in range(12):
        assert taken(queue) == [A]
        queue.failed(A)
        pauses.append(queue._waiting[A].due_s - clock.now_s)
        clock.now_s = queue._waiting[A].due_s
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert taken(queue) == [A]
    queue.done(A)
    queue.add(A)
    assert taken(queue) == [A]
    queue.failed(A)
    assert queue._waiting[A].due_s == clock.now_s + 1.0


@pytest.mark.parametrize(("drawn", "pause_s"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_pauses_are_spread_at_random(drawn: float, pause_s: float) -> None:
    """So that keys that failed together are not tried together."""
    queue = a_queue(Clock(), lambda: drawn)
    queue.add(A)
    assert taken(queue) == [A]
    queue.failed(A)
    assert queue._waiting[A].due_s == pause_s


def test_news_do_not_wait_for_a_pause() -> None:
    """What has changed may have mended what failed; the count of failures stays."""
    clock = Clock()
    queue = a_queue(clock)
    queue.add(A)
    assert taken(queue) == [A]
    queue.failed(A)
    queue.add(A)
    assert taken(queue) == [A]
    queue.failed(A)
    assert queue._waiting[A].due_s == 2.0


def test_a_key_that_is_forgotten_does_not_come_back() -> None:
    """Not by a time that was asked for, nor by a failure of work under way."""
    clock = Clock()
    queue = a_queue(clock)
    queue.add_at(A, 5.0)
    queue.forget(A)
    queue.forget(B)
    queue.add(C)
    assert taken(queue) == [C]
    queue.add_at(C, 5.0)
    queue.forget(C)
    queue.failed(C)
    clock.now_s = math.inf
    assert taken(queue) == []
    assert (len(queue), queue._failures) == (0, {})


def test_a_name_that_is_used_again_counts_again() -> None:
    """A plan that is deleted and made anew during a pass is looked at after it."""
    queue = a_queue(Clock())
    queue.add(A)
    assert taken(queue) == [A]
    queue.forget(A)
    queue.add(A)
    queue.failed(A)
    assert taken(queue) == [A]


def test_nothing_is_kept_of_idle_keys() -> None:
    """Neither of those that went well nor of those that failed before."""
    clock = Clock()
    queue = a_queue(clock)
    for number in range(1000):
        queue.add(("ml", str(number)))
    for key in taken(queue):
        queue.failed(key)
    clock.now_s = 1.0
    for key in taken(queue):
        queue.done(key)
    assert queue._first() is None
    kept = (queue._heap, queue._waiting, queue._after, queue._failures)
    assert [len(one) for one in kept] == [0, 0, 0, 0]


def test_times_that_count_no_more_do_not_pile_up() -> None:
    """A plan that has news every second, behind another that is due before its time."""
    clock = Clock()
    queue = a_queue(clock)
    queue.add_at(B, 20_000.0)
    for number in range(10_000):
        clock.now_s = float(number)
        queue.add(A)
        assert taken(queue) == [A]
        queue.add_at(A, clock.now_s + 30_000.0)
        queue.done(A)
        assert len(queue._heap) <= LEAST_HEAP + 1


class CountedTime(float):
    """A time that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        """Count, and compare."""
        CountedTime.compared += 1
        return float(self) < other


def test_many_keys_cost_little_each() -> None:
    """2,000 keys, each added twice: comparisons grow as n log n, no faster."""
    num_keys = 2_000
    queue = a_queue(lambda: CountedTime(1e6))
    CountedTime.compared = 0
    for number in range(num_keys):
        key, at_s = ("ml", str(number)), number * 7919 % num_keys  # out of order
        queue.add_at(key, CountedTime(at_s + 0.5))
        queue.add_at(key, CountedTime(at_s))
    assert len(taken(queue)) == num_keys
    assert num_keys < CountedTime.compared < 4 * num_keys * math.log2(num_keys)


def test_a_worker_is_woken_by_what_is_added() -> None:
    """At once, also past a later time that it waited for; each wakes for one key."""

    async def work() -> None:
        queue = a_queue(time.monotonic)
        queue.add_at(C, time.monotonic() + 3600.0)
        waiting = [asyncio.create_task(queue.take()) for _ in range(3)]
        await asyncio.sleep(0)
        queue.add(A)
        queue.add(B)
        done, pending = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
        await asyncio.sleep(0)
        found = {one.result() for one in waiting if one.done()}
        assert found == {A, B}
        assert len(done | pending) == 3
        [last] = [one for one in waiting if not one.done()]
        last.cancel()
        with pytest.raises(asyncio.CancelledError):
            await last
        assert len(queue) == 3

    asyncio.run(work())


def test_a_worker_is_woken_past_a_time_that_counts_no_more() -> None:
    """What is first in the heap may be forgotten, or earlier than what it became."""

    async def work() -> None:
        queue = a_queue(time.monotonic)
        queue.add_at(A, time.monotonic() + 100.0)
        waiting = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        queue.forget(A)
        queue.add_at(B, time.monotonic() + 0.01)
        assert await asyncio.wait_for(waiting, 30.0) == B
        queue.done(B)
        queue.add_at(A, time.monotonic() + 0.01)
        assert await asyncio.wait_for(queue.take(), 30.0) == A

    asyncio.run(work())


def test_a_time_in_the_future_is_waited_for() -> None:
    """By the clock, and no shorter."""

    async def work() -> None:
        queue = a_queue(time.monotonic)
        due_s = time.monotonic() + 0.05
        queue.add_at(A, due_s)
        assert await queue.take() == A
        assert time.monotonic() >= due_s

    asyncio.run(work())


def test_no_key_is_with_two_workers() -> None:
    """Eight workers, twenty keys, news all the while: every key has its last pass."""

    async def work() -> None:
        queue = a_queue(time.monotonic)
        draw = a_dice()
        busy: set[PlanKey] = set()
        seen: dict[PlanKey, int] = {}
        latest: dict[PlanKey, int] = {}

        async def worker() -> None:
            while True:
                key = await queue.take()
                assert key not in busy
                busy.add(key)
                seen[key] = latest[key]
                for _ in range(draw(3)):
                    await asyncio.sleep(0)
                busy.remove(key)
                queue.done(key)

        workers = [asyncio.create_task(worker()) for _ in range(8)]
        for number in range(5000):
            key = ("ml", str(draw(20)))
            latest[key] = number
            queue.add(key)
            if draw(2):
                await asyncio.sleep(0)
        while len(queue):  # noqa: ASYNC110 - nobody is told when all is done
            await asyncio.sleep(0)
        assert not any(one.done() for one in workers)
        assert seen == latest
        for one in workers:
            one.cancel()

    asyncio.run(work())


class QueueMachine(RuleBasedStateMachine):
    """The queue against a list of what was asked for."""

    keys = st.sampled_from([A, B, C])

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.clock = Clock()
        self.queue = a_queue(self.clock)
        self.due: dict[PlanKey, float] = {}
        self.working: set[PlanKey] = set()

    @rule(key=keys, delay_s=st.sampled_from([0.0, 1.0, 400.0]))
    def add(self, key: PlanKey, delay_s: float) -> None:
        """Ask for a pass."""
        at_s = self.clock.now_s + delay_s
        self.queue.add_at(key, at_s)
        self.due[key] = min(self.due.get(key, math.inf), at_s)

    @rule(seconds=st.sampled_from([0.5, 1.0, 500.0]))
    def wait(self, seconds: float) -> None:
        """Let time go by."""
        self.clock.now_s += seconds

    @rule()
    def take(self) -> None:
        """Take what is due: the earliest that is not in work, if any is."""
        free = {k: at_s for k, at_s in self.due.items() if k not in self.working}
        ready = [at_s for at_s in free.values() if at_s <= self.clock.now_s]
        key = self.queue._take_due()
        if key is None:
            assert not ready
            return
        assert self.due.pop(key) == min(ready)
        assert key in free
        self.working.add(key)

    @precondition(lambda self: self.working)
    @rule(choice=st.randoms(use_true_random=False), ok=st.booleans())
    def end(self, choice: random.Random, ok: bool) -> None:
        """End some work, well or not."""
        key = choice.choice(sorted(self.working))
        self.working.remove(key)
        if ok:
            self.queue.done(key)
            return
        self.queue.failed(key)
        entry = self.queue._waiting[key]
        assert entry.due_s <= self.clock.now_s + LONGEST_PAUSE_S
        assert entry.due_s <= self.due.get(key, math.inf)
        self.due[key] = entry.due_s

    @invariant()
    def it_holds_what_was_asked_for(self) -> None:
        """No more keys, and no fewer."""
        assert len(self.queue) == len(self.due.keys() | self.working)


QueueMachine.TestCase.settings = settings(
    max_examples=draws(50), stateful_step_count=40
)
TestQueueMachine = QueueMachine.TestCase
