"""Event loops of tests on a server, which end when their connections have.

A request that is given up closes its connection as TLS does: it says so, and waits for
the server to say it too. Nothing waits for that: neither a client that is closed nor
`asyncio.run`. Beside other work the loop had then ended first, and the open socket was
held against whichever test came next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
MOST_POLLS, POLL_S = 4000, 0.01
"""For a server to answer; asyncio itself gives up after 30 s."""
OWN = 1
"""Files that a loop watches while nothing is open: its own way to wake up."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run as `asyncio.run` does, until all connections are closed as well."""
    return asyncio.run(_until_closed(main))


async def _until_closed(main: Coroutine[Any, Any, T]) -> T:
    """Result of a coroutine, once its loop watches no connection."""
    try:
        return await main
    finally:
        watched = vars(asyncio.get_running_loop())["_selector"].get_map()
        for _ in range(MOST_POLLS):
            if len(watched) <= OWN:
                break
            await asyncio.sleep(POLL_S)
