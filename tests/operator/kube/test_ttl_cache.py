"""Answers that are kept for a short while."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from plimsoll_operator.kube.ttl_cache import TtlCache


class Source:
    """Something that answers with the key, and counts how often it was asked."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.asked: Counter[str] = Counter()
        self.is_down = False
        self.now_s = 0.0
        self.kept = TtlCache[str, str](
            most=2, keep_s=lambda answer: float(len(answer)), clock=lambda: self.now_s
        )

    async def get(self, key: str) -> str:
        """Answer to a key, kept or asked for."""

        async def ask() -> str:
            self.asked[key] += 1
            await asyncio.sleep(0)
            if self.is_down:
                raise ConnectionError(key)
            return key

        return await self.kept.get(key, ask)


def test_an_answer_holds_as_long_as_it_says() -> None:
    """Here a second for each letter."""
    source = Source()

    async def work() -> None:
        for now_s, asked in ((0.0, 1), (2.9, 1), (3.0, 2), (5.9, 2), (6.0, 3)):
            source.now_s = now_s
            assert await source.get("abc") == "abc"
            assert source.asked["abc"] == asked

    asyncio.run(work())


def test_what_was_used_longest_ago_is_let_go() -> None:
    """There are two at most."""
    source = Source()

    async def work() -> None:
        for key in ("aa", "bb", "aa", "cc", "aa", "bb"):
            await source.get(key)

    asyncio.run(work())
    assert source.asked == {"aa": 1, "bb": 2, "cc": 1}


def test_an_error_reaches_all_who_wait_and_is_not_kept() -> None:
    """Whoever asks next asks anew."""
    source = Source()

    async def work() -> None:
        source.is_down = True
        both = (source.get("a"), source.get("a"))
        found = await asyncio.gather(*both, return_exceptions=True)
        assert [type(one) for one in found] == [ConnectionError] * 2
        assert source.asked["a"] == 1
        source.is_down = False
        assert await source.get("a") == "a"

    asyncio.run(work())


def test_an_error_that_nobody_waits_for_any_more_is_no_complaint() -> None:
    """Asyncio would write a traceback for each."""
    source = Source()
    complaints: list[object] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        source.is_down = True
        waiting = asyncio.create_task(source.get("a"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0.01)

    asyncio.run(work())
    assert source.asked["a"] == 1
    assert complaints == []
