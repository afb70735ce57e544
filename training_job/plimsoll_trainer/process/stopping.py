"""Being asked to stop: SIGTERM is noted, and answered between two steps.

Imports nothing, so that the signal is caught while torch still loads.
"""

from __future__ import annotations

import signal
from types import FrameType


class StopSignal:
    """Notes that this process was asked to stop."""

    def __init__(self) -> None:
        """Start without a request."""
        self.is_set = False

    def listen(self) -> None:
        """Catch SIGTERM from now on; it no longer ends the process."""
        signal.signal(signal.SIGTERM, self._remember)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # see `restart`

    def _remember(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        del number, frame
        self.is_set = True
