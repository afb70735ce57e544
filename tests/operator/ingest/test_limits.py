"""How often and how much may be told at a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from plimsoll_operator.errors import RefusedReportError
from plimsoll_operator.ingest.limits import Budget, Rates, Room


def test_a_minutes_worth_may_come_at_once() -> None:
    """Then one by one, as time passes; keys do not share."""
    now_s = 0.0
    rates = Rates(per_min=60, most_keys=10, clock=lambda: now_s)
    assert [rates.take("a") for _ in range(60)] == [0.0] * 60
    assert rates.take("a") == 1.0
    assert rates.take("b") == 0.0
    now_s = 0.5
    assert rates.take("a") == 0.5
    now_s = 1.0
    assert rates.take("a") == 0.0
    assert rates.take("a") == 1.0
    now_s = 1e9
    assert [rates.take("a") for _ in range(61)] == [0.0] * 60 + [1.0]


def test_so_many_keys_are_counted_and_no_more() -> None:
    """Of the one that was idle for longest the count is forgotten."""
    rates = Rates(per_min=1, most_keys=2, clock=lambda: 0.0)
    for key in ("a", "b", "a", "c"):
        rates.take(key)
    assert rates.take("a") > 0
    assert rates.take("b") == 0


def test_room_is_bounded_for_all_and_for_each() -> None:
    """One namespace cannot take all of it; what is done with is free again."""
    room = Room(most_bytes=100, most_bytes_each=60)
    with room.claim("a") as mine, room.claim("b") as other:
        mine.grow(60)
        for claim, num_bytes in ((mine, 1), (other, 41)):
            with pytest.raises(RefusedReportError, match="send it again") as refused:
                claim.grow(num_bytes)
            assert (refused.value.status, refused.value.retry_after_s) == (429, 2)
        other.grow(40)
        assert (mine.held_bytes, other.held_bytes) == (60, 40)
    with room.claim("b") as later:
        later.grow(60)


def test_room_of_what_failed_is_free_again() -> None:
    """Whatever ended the work on a body."""
    room = Room(most_bytes=10, most_bytes_each=10)
    for _ in range(3):
        with suppress(KeyError), room.claim("a") as claim:
            claim.grow(10)
            raise KeyError


def test_who_finds_too_little_left_waits() -> None:
    """Until it is given back, whatever happened; what is small need not."""
    budget, log = Budget(10), list[str]()

    async def take(name: str, amount: int, until: asyncio.Event) -> None:
        with suppress(KeyError):
            async with budget.share(amount):
                log.append(name)
                await until.wait()
                raise KeyError

    async def work() -> None:
        now, later = asyncio.Event(), asyncio.Event()
        later.set()
        tasks = [asyncio.create_task(take("large", 8, now))]
        tasks.append(asyncio.create_task(take("waits", 8, later)))
        tasks.append(asyncio.create_task(take("small", 2, now)))
        await asyncio.sleep(0.01)
        assert log == ["large", "small"]
        now.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        assert log == ["large", "small", "waits"]
        await asyncio.wait_for(take("all", 10, later), 60)

    asyncio.run(work())
