"""The file that reports go to. It can neither stop nor slow the training.

A sink has a thread and a queue of its own. What does not fit the queue is
lost, oldest first; what cannot be delivered is tried again a few times, then lost. The
first loss is one line on stderr, later ones are silent.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

WAIT_BEFORE_RETRY_S = (1.0, 4.0)
"""Two more attempts."""
MOST_LINES_WAITING = 10_000

Deliver = Callable[[bytes], None]
"""Takes one message; raises where it cannot."""
Warn = Callable[[str], None]


class BackgroundSink:
    """Delivers messages from a thread of its own."""

    def __init__(
        self, what: str, deliver: Deliver, *, most_waiting: int, warn: Warn
    ) -> None:
        """Start the thread.

        Warnings name the target by `what`. The oldest of too many messages are lost.
        """
        self._what = what
        self._deliver = deliver
        self._warn = warn
        self._waiting: deque[bytes] = deque(maxlen=most_waiting)
        self._changed = threading.Condition()
        self._closing = False
        self._has_warned = False
        self._thread = threading.Thread(target=self._work, daemon=True, name=what)
        self._thread.start()

    def put(self, message: bytes) -> None:
        """Hand over a message; returns at once."""
        with self._changed:
            self._waiting.append(message)
            self._changed.notify()

    def close(self, patience_s: float) -> None:
        """Deliver what waits, for so long at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(patience_s)

    def _work(self) -> None:
        """Deliver until closed and empty."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                message = self._waiting.popleft()
            self._try_to_deliver(message)

    def _try_to_deliver(self, message: bytes) -> None:
        """Deliver one message, or lose it."""
        for wait_s in (*WAIT_BEFORE_RETRY_S, None):
            try:
                self._deliver(message)
            except Exception as error:  # noqa: BLE001 - none may end the thread
                if wait_s is None or self._closing:
                    self._warn_once(error)
                    break
                self._pause(wait_s)
            else:
                break

    def _warn_once(self, error: Exception) -> None:
        """Warn of the first loss."""
        if not self._has_warned:
            self._has_warned = True
            self._warn(
                f"reports to {self._what} are lost: {type(error).__name__}: {error}; "
                "training goes on without them"
            )

    def _pause(self, seconds: float) -> None:
        """Wait, but not past the close."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, timeout=seconds)


def file_sink(path: Path, warn: Warn) -> BackgroundSink:
    """Append lines to a file; several ranks may append to one."""
    return BackgroundSink(
        str(path), FileAppender(path), most_waiting=MOST_LINES_WAITING, warn=warn
    )


class FileAppender:
    """Writes each line with one call, so that lines of several ranks stay whole."""

    def __init__(self, path: Path) -> None:
        """Remember the file; it is opened by the first line."""
        self._path = path
        self._descriptor: int | None = None
        self._is_torn = False

    def __call__(self, line: bytes) -> None:
        """Append a line."""
        if self._descriptor is None:
            # Not to wait for the reader of a named pipe.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
            self._descriptor = os.open(self._path, flags, 0o644)
        text = (b"\n" if self._is_torn else b"") + line + b"\n"
        written = os.write(self._descriptor, text)
        self._is_torn = written < len(text)
        if self._is_torn:
            raise OSError(f"{written} of {len(text)} bytes written")
