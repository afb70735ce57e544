"""Reports of a pod's ranks: read from a named pipe each, kept while they are news.

In: the lines that `plimsoll_trainer.reporting.reports` writes. Out: the latest
observation of each rank, and the first rank that ran out of device memory. A pipe takes
no room on the node, however long the training; a rank whose pipe is full loses a line,
never a step.
"""

from __future__ import annotations

import json
import os
import selectors
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from plimsoll_planner.pod_names import report_name
from plimsoll_planner.records.document import to_text
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.task import FullDevice

CHUNK_BYTES = 65_536
POLL_S = 0.5

OnObservation = Callable[[int, bytes], None]
"""Takes a rank, and its newest observation as JSON."""


class RankReports:
    """Reads what all ranks of a pod report, in a thread of its own."""

    def __init__(
        self, work: Path, ranks: Iterable[int], on_observation: OnObservation
    ) -> None:
        """Open the pipes, before any rank is started."""
        self._on_observation = on_observation
        self._torn: dict[int, bytes] = {}
        self._selector = selectors.DefaultSelector()
        for rank in ranks:
            pipe = work / report_name(rank)
            os.mkfifo(pipe)
            # For writing as well: else the pipe ends with the first writer that does.
            reading = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
            self._selector.register(reading, selectors.EVENT_READ, rank)
        self.full_device: FullDevice | None = None
        """The first that ran out of memory."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read_on, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read what is left, and stop."""
        self._ending.set()
        self._thread.join()

    def _read_on(self) -> None:
        """Read until closed, and then until nothing is left."""
        while True:
            ready = self._selector.select(0 if self._ending.is_set() else POLL_S)
            for key, _ in ready:
                with suppress(BlockingIOError):
                    self._take(key.data, os.read(key.fd, CHUNK_BYTES))
            if not ready and self._ending.is_set():
                return

    def _take(self, rank: int, text: bytes) -> None:
        """Take what has come; the last line may not be whole yet."""
        *lines, self._torn[rank] = (self._torn.get(rank, b"") + text).split(b"\n")
        for line in lines:
            with suppress(ValueError, LookupError, TypeError):  # torn by a full pipe
                self._understand(rank, json.loads(line))

    def _understand(self, rank: int, line: dict[str, Any]) -> None:
        """Keep what one line reports."""
        if line["event"] == "observation":
            found = Observation.from_json(line["observation"], "observation")
            self._on_observation(rank, to_text(found).encode())
        elif line["event"] == "failure" and "asked_bytes" in line:
            full = FullDevice(
                rank=rank,
                phase=Phase(line["phase"]),
                asked_bytes=int(line["asked_bytes"]),
            )
            self.full_device = self.full_device or full
