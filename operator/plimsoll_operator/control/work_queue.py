"""The queue of plans to look at: one key for each, handled by one worker at a time.

In: keys, from watches, from passes that want to look again later, from failures. Out:
the key that is due first. Called by the loop; nothing here knows what a key stands for.

    add, add_at        the earliest time asked for wins; while the key is in work it is
                       kept for after, so that nothing seen meanwhile is lost
    take               waits for the next key that is due, and puts it in work
    done               ends the work; what was asked for meanwhile now counts
    failed             ends it too, and asks for another try: after 1 s, doubled with
                       each failure in a row up to 300 s, and up to half of it sooner
    forget             nothing more is wanted for a key: its object is gone

Times stand in one heap, and only the workers that wait have a timer. An earlier time
leaves the later one in the heap, where it counts for nothing; when half of the heap is
such, it is made anew. Of a key that nobody wants nothing is kept.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final, NamedTuple

from plimsoll_operator.names import PlanKey

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
DOUBLINGS: Final = 9
"""After so many the longest pause is reached."""
LEAST_HEAP: Final = 64
"""Below this no heap is made anew."""


class Entry(NamedTuple):
    """A time in the heap; of equal times the one asked for first comes first."""

    due_s: float
    number: int
    key: PlanKey


class WorkQueue:
    """Keys and when they are due. Not for several threads."""

    def __init__(self, clock: Callable[[], float], random: Callable[[], float]) -> None:
        """Begin empty; `clock` only grows, in seconds; `random` is even, 0 to 1."""
        self._clock, self._random = clock, random
        self._numbers = count()
        self._heap: list[Entry] = []
        self._waiting: dict[PlanKey, Entry] = {}
        self._after: dict[PlanKey, float | None] = {}
        """By key in work: when it is due again, infinity where it is not; None where
        it was forgotten, so that no failure brings it back."""
        self._failures: dict[PlanKey, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Number of keys that wait or are in work."""
        return len(self._waiting) + len(self._after)

    @property
    def due_since_s(self) -> float | None:
        """Since when a key has been due that nobody has taken; None where none is."""
        first = self._first()
        is_due = first is not None and first.due_s <= self._clock()
        return first.due_s if first is not None and is_due else None

    def add(self, key: PlanKey) -> None:
        """Ask for a pass now."""
        self.add_at(key, self._clock())

    def add_at(self, key: PlanKey, at_s: float) -> None:
        """Ask for a pass at a time of the clock, unless one is due before it."""
        if key in self._after:
            asked = self._after[key]
            self._after[key] = at_s if asked is None else min(asked, at_s)
            return
        before = self._waiting.get(key)
        if before is not None and before.due_s <= at_s:
            return
        entry = Entry(at_s, next(self._numbers), key)
        self._waiting[key] = entry
        heapq.heappush(self._heap, entry)
        self._drop_stale()
        if self._first() is entry:
            self._changed.set()

    async def take(self) -> PlanKey:
        """Wait for the next key that is due; the caller ends its work."""
        while (key := self._take_due()) is None:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._changed.wait()
        return key

    def done(self, key: PlanKey) -> None:
        """End the work on a key that went well."""
        self._failures.pop(key, None)
        self._end(key, math.inf)

    def failed(self, key: PlanKey) -> None:
        """End the work on a key, and try again after a pause."""
        if self._after[key] is None:
            self.done(key)
            return
        number = self._failures.get(key, 0)
        self._failures[key] = min(number + 1, DOUBLINGS)
        longest_s = min(FIRST_PAUSE_S * 2.0**number, LONGEST_PAUSE_S)
        pause_s = longest_s * (1 - self._random() / 2)
        self._end(key, self._clock() + pause_s)

    def forget(self, key: PlanKey) -> None:
        """Want nothing more for a key; work on it that is under way goes on."""
        self._waiting.pop(key, None)
        self._failures.pop(key, None)
        if key in self._after:
            self._after[key] = None
        self._drop_stale()

    def _end(self, key: PlanKey, again_s: float) -> None:
        """Let go of a key that is in work."""
        asked = self._after.pop(key)
        again_s = again_s if asked is None else min(asked, again_s)
        if again_s < math.inf:
            self.add_at(key, again_s)

    def _take_due(self) -> PlanKey | None:
        """Put the first key that is due in work, and return it."""
        first = self._first()
        if first is None or first.due_s > self._clock():
            return None
        heapq.heappop(self._heap)
        del self._waiting[first.key]
        self._after[first.key] = math.inf
        return first.key

    def _first(self) -> Entry | None:
        """The first entry that counts; those before it are dropped."""
        while self._heap and self._waiting.get(self._heap[0].key) is not self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def _pause_s(self) -> float | None:
        """Seconds until something is due; None: until something is added."""
        first = self._first()
        return None if first is None else max(0.0, first.due_s - self._clock())

    def _drop_stale(self) -> None:
        """Make the heap anew where half of it counts for nothing."""
        if len(self._heap) > max(LEAST_HEAP, 2 * len(self._waiting)):
            self._heap = list(self._waiting.values())
            heapq.heapify(self._heap)
