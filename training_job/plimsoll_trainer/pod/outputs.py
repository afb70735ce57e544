"""Output of the processes of a pod, passed on to the container's log as it comes.

Nothing is kept in files, because a long training would fill a node with them. Kept are
the last line of each process on stderr, which says why it ended, and what a replay
prints, which is its result.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from plimsoll_planner.errors import one_line
from plimsoll_trainer.supervisor import LONGEST_LINE

JOIN_S = 5.0
"""For the rest of the output of an ended process; others may hold its pipe open."""


class PodOutputs:
    """The outputs of the processes of one pod."""

    def __init__(self, captured: Path | None = None) -> None:
        """Start without any process; a file may take stdout in place of the log."""
        self._captured = captured
        self._tees: dict[int, Tee] = {}

    @contextmanager
    def open(self, place: int) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Open a pipe for stderr; stdout is the container's own."""
        tee = self._tees[place] = Tee()
        try:
            if self._captured is None:
                yield sys.stdout.buffer, tee.entry
            else:
                with self._captured.open("wb") as out:
                    yield out, tee.entry
        finally:
            tee.entry.close()

    def last_line(self, place: int) -> str:
        """Last line that is not blank."""
        return self._tees[place].last_line()


class Tee:
    """Passes on what comes through a pipe, line by line, and keeps the last one."""

    def __init__(self) -> None:
        """Open the pipe and start to pass on."""
        reading, writing = os.pipe()
        self.entry: IO[bytes] = os.fdopen(writing, "wb")
        self._last = b""
        self._thread = threading.Thread(target=self._pass, args=(reading,), daemon=True)
        self._thread.start()

    def last_line(self) -> str:
        """The last line, once the process has ended."""
        self._thread.join(JOIN_S)
        return one_line(self._last.decode(errors="replace").strip())[:LONGEST_LINE]

    def _pass(self, reading: int) -> None:
        """Pass on until every writer is gone."""
        with os.fdopen(reading, "rb") as exit_end:
            for line in exit_end:
                if line.strip():
                    self._last = line
                with suppress(OSError, ValueError):  # nobody reads the log any more
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()
