"""Answers of the API server, kept for a short while.

In: keys and how to ask. Out: answers. Called where every pod of a worker group would
ask the same question within a second. Who asks while another one asks waits for that
answer; what failed is not kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class TtlCache(Generic[Key, Value]):
    """The latest answers, at most so many; those used longest ago are let go."""

    def __init__(
        self,
        *,
        most: int,
        keep_s: Callable[[Value], float],
        clock: Callable[[], float],
    ) -> None:
        """Begin empty, for `most` answers; `clock` is in seconds that never go back."""
        self._most = most
        self._keep_s = keep_s
        self._clock = clock
        self._known: OrderedDict[Key, tuple[float, Value]] = OrderedDict()
        self._asking: dict[Key, asyncio.Task[Value]] = {}

    async def get(self, key: Key, ask: Callable[[], Awaitable[Value]]) -> Value:
        """The answer that holds, else ask; raises what asking raises."""
        until_s, *known = self._known.get(key, (0.0,))
        if known and self._clock() < until_s:
            self._known.move_to_end(key)
            return known[0]
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.create_task(self._ask(key, ask))
            self._asking[key] = asking
            asking.add_done_callback(retrieve)
        # Shielded: that one who waits goes away is no reason for the others to fail.
        return await asyncio.shield(asking)

    async def _ask(self, key: Key, ask: Callable[[], Awaitable[Value]]) -> Value:
        """Ask, and keep the answer."""
        try:
            answer = await ask()
        finally:
            del self._asking[key]
        self._known[key] = (self._clock() + self._keep_s(answer), answer)
        self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return answer


def retrieve(asked: asyncio.Task[Value]) -> None:
    """Look at an error that nobody may have waited for, or asyncio complains."""
    if not asked.cancelled():
        asked.exception()
