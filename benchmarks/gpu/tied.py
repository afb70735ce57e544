"""`python -m benchmarks.gpu.tied PARENT MODULE WORDS..`: runs no longer than PARENT.

In: the id of the process that starts this one, and what to become. The kernel kills it
when that one ends, however it does (PR_SET_PDEATHSIG in prctl(2), which outlives exec).
Started by `make gpu`, and for each rehearsal, which would hold the GPU for minutes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def main() -> None:
    """Tie this process to its parent, and become the module."""
    parent, *words = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it ended before it was asked about
        sys.exit(1)
    command = (sys.executable, "-m", *words)
    os.execv(sys.executable, command)  # noqa: S606 - our own modules


if __name__ == "__main__":
    main()
