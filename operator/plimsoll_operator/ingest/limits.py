"""Limits on reports: how often, and how much at a time.

In: keys, bytes, a clock. Out: leave, or how long to wait. Called by `server`. All of it
is of bounded size itself: keys come from outside.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus

from plimsoll_operator.errors import RefusedReportError

SOON_S = 2
"""After which room is likely: bodies are read, judged and kept in less."""


class Rates:
    """A budget of events for each key, which fills up again with time."""

    def __init__(
        self, *, per_min: int, most_keys: int, clock: Callable[[], float]
    ) -> None:
        """Give every key a minute's worth to begin with.

        Beyond `most_keys`, the counts of those idle for longest are forgotten. `clock`
        is in seconds that never go back.
        """
        self._per_min = per_min
        self._most_keys = most_keys
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By key: events left, and when that was."""

    def take(self, key: str) -> float:
        """Count an event; return 0, or in how many seconds there may be one."""
        now_s = self._clock()
        left, at_s = self._left.pop(key, (float(self._per_min), now_s))
        per_s = self._per_min / 60
        left = min(float(self._per_min), left + (now_s - at_s) * per_s)
        wait_s = 0.0 if left >= 1 else (1 - left) / per_s
        self._left[key] = (left if wait_s else left - 1, now_s)
        if len(self._left) > self._most_keys:
            self._left.popitem(last=False)
        return wait_s


class Room:
    """Memory for the bodies that are in work."""

    def __init__(self, *, most_bytes: int, most_bytes_each: int) -> None:
        """Begin empty; `most_bytes_each` is for a namespace, so that none takes all."""
        self._most_bytes = most_bytes
        self._most_bytes_each = most_bytes_each
        self._used_bytes: Counter[str] = Counter()

    @contextmanager
    def claim(self, namespace: str) -> Generator[Claim]:
        """Open a claim; what it holds is free again at the end."""
        claim = Claim(self, namespace)
        try:
            yield claim
        finally:
            self.give(namespace, -claim.held_bytes)

    def give(self, namespace: str, num_bytes: int) -> None:
        """Hand out room, or take it back.

        Raises:
            RefusedReportError: there is none now.
        """
        total = self._used_bytes.total() + num_bytes
        mine = self._used_bytes[namespace] + num_bytes
        is_full = total > self._most_bytes or mine > self._most_bytes_each
        if num_bytes > 0 and is_full:
            raise RefusedReportError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too much is reported at a time: send it again",
                retry_after_s=SOON_S,
            )
        self._used_bytes[namespace] = mine
        if not mine:
            del self._used_bytes[namespace]


class Claim:
    """The room that one body takes."""

    def __init__(self, room: Room, namespace: str) -> None:
        """Begin with none."""
        self._room = room
        self._namespace = namespace
        self.held_bytes = 0

    def grow(self, num_bytes: int) -> None:
        """Take more.

        Raises:
            RefusedReportError: there is no more now.
        """
        self._room.give(self._namespace, num_bytes)
        self.held_bytes += num_bytes


class Budget:
    """An amount that is shared; who finds too little left waits."""

    def __init__(self, most: int) -> None:
        """Begin with all of it."""
        self._left = most
        self._given_back = asyncio.Condition()

    @asynccontextmanager
    async def share(self, amount: int) -> AsyncGenerator[None]:
        """Take some until the block ends; never more than there is in all.

        A small amount may overtake a large one that waits.
        """
        async with self._given_back:
            await self._given_back.wait_for(lambda: amount <= self._left)
            self._left -= amount
        try:
            yield
        finally:
            self._left += amount
            async with self._given_back:
                self._given_back.notify_all()
