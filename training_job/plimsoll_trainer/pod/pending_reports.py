"""Reports of ranks that are still to be sent, at most one for each.

In: observations, as they come from the ranks. Out: requests of the report client, one
after the other, for as long as the operator is waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from plimsoll_trainer.pod.report_client import (
    CLOSING_WAIT_S,
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    POLL_S,
    Deadline,
    ReportClient,
    Warn,
)


class PendingReports:
    """Sends the newest report of each rank, in a thread of its own.

    A newer observation contains all of an older one, so at most one is pending for each
    rank.
    """

    def __init__(
        self,
        client: ReportClient,
        path: str,
        warn: Warn,
        take: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """Start with none; `take` is called with what is sent back for a report."""
        self._take = take
        self._client = client
        self._path = path
        self._warn = warn
        self._pending: dict[int, bytes] = {}
        self._changed = threading.Condition()
        self._deadline: Deadline | None = None
        self._has_warned = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def put(self, rank: int, body: bytes) -> None:
        """Hand over a report; returns at once."""
        with self._changed:
            self._pending[rank] = body
            self._changed.notify()

    def close(self, deadline: Deadline) -> None:
        """Send what is pending, until then at most."""
        with self._changed:
            self._deadline = deadline
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        """Send until closed and empty, or the time is over."""
        wait_s = FIRST_WAIT_S
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._pending or self._deadline is not None
                )
                if not self._pending or self._is_late():
                    return
                rank, body = self._pending.popitem()
            answer = self._client.send(self._path, body)
            if answer.body:
                self._take(answer.body)
            if answer.refusal:
                self._warn_once(f"refused: {answer.refusal}")
            if answer.is_taken or answer.refusal:
                wait_s = FIRST_WAIT_S
                continue
            self._warn_once(f"{answer.fault}; trying on")
            with self._changed:
                self._pending.setdefault(rank, body)
            retry = Deadline()
            retry.within(wait_s)
            while retry.left_s > 0 and not self._is_late():
                if self._deadline is not None:
                    retry.within(CLOSING_WAIT_S)
                time.sleep(POLL_S)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _is_late(self) -> bool:
        """Whether the time for them is over."""
        return self._deadline is not None and self._deadline.left_s <= 0

    def _warn_once(self, text: str) -> None:
        """Warn of the first report that was not accepted."""
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"the operator takes no reports ({text}); training goes on")
