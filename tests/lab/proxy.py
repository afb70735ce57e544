"""A way to the API server that can be cut, as a network does it: nobody is notified.

In: the lab's kubeconfig. Out: one that goes through a proxy of this process, and the
switch. Connections stay open whatever the switch says; what should pass and may not is
kept, and passes later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import yaml

CHUNK_BYTES = 65_536


class Proxy:
    """The switch."""

    def __init__(self, kubeconfig: Path) -> None:
        """Let everything pass."""
        self.kubeconfig = kubeconfig
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.writers: list[asyncio.StreamWriter] = []
        self.num_connections = 0
        self.open()

    def open(self) -> None:
        """Let everything pass."""
        self._requests.set()
        self._answers.set()

    def cut(self) -> None:
        """Let nothing pass: requests hang."""
        self._requests.clear()
        self._answers.clear()

    def mute(self) -> None:
        """Let requests pass, and no answers."""
        self._requests.set()
        self._answers.clear()

    def leave_hanging(self) -> None:
        """Let nothing pass ever again on the connections that there are."""
        for task in self._tasks:
            task.cancel()

    def drop(self) -> None:
        """End the connections that there are; others can be made."""
        for writer in self.writers:
            writer.close()
        self.writers.clear()

    async def carry(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        gate: asyncio.Event,
    ) -> None:
        """Carry one direction of one connection."""
        with suppress(OSError):
            while chunk := await source.read(CHUNK_BYTES):
                await gate.wait()
                target.write(chunk)
                await target.drain()
            target.close()

    def start(
        self,
        ours: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        theirs: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Carry both directions of a connection."""
        self.num_connections += 1
        for work in (
            self.carry(ours[0], theirs[1], self._requests),
            self.carry(theirs[0], ours[1], self._answers),
        ):
            task = asyncio.create_task(work)
            self._tasks.add(task)


@asynccontextmanager
async def proxied(kubeconfig: Path, folder: Path) -> AsyncGenerator[Proxy]:
    """Run a proxy in front of the server of a kubeconfig.

    Args:
        kubeconfig: of the lab.
        folder: for the one that goes through the proxy.
    """
    content = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
    [cluster] = [one["cluster"] for one in content["clusters"]]
    server = urlsplit(cluster["server"])
    proxy = Proxy(folder / "kubeconfig")

    async def accept(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        theirs = await asyncio.open_connection(server.hostname, server.port)
        proxy.writers += (writer, theirs[1])
        proxy.start((reader, writer), theirs)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    cluster["server"] = f"https://127.0.0.1:{port}"
    await asyncio.to_thread(proxy.kubeconfig.write_text, yaml.safe_dump(content))
    try:
        yield proxy
    finally:
        listener.close()
        proxy.leave_hanging()
        proxy.drop()
