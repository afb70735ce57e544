"""A loop of a test ends after its connections."""

from __future__ import annotations

import asyncio
import socket
from asyncio.trsock import TransportSocket

import pytest

from tests.lab import event_loops


async def closes_late(server: socket.socket) -> TransportSocket:
    """Connection that is still open when the coroutine ends, and closed soon after."""
    _, writer = await asyncio.open_connection(*server.getsockname())
    asyncio.get_running_loop().call_later(0.2, writer.close)
    opened: TransportSocket = writer.get_extra_info("socket")
    return opened


def test_a_loop_ends_when_its_connections_are_closed() -> None:
    """Though what it ran had its result before."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert event_loops.run(closes_late(server)).fileno() == -1


def test_a_fault_is_raised_when_its_connections_are_closed() -> None:
    """Once they are."""
    opened: list[TransportSocket] = []

    async def fails(server: socket.socket) -> None:
        opened.append(await closes_late(server))
        raise ValueError

    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(ValueError):  # noqa: PT011 - it is ours
            event_loops.run(fails(server))
        assert opened[0].fileno() == -1
