"""Runs a command and waits for what it leaves behind: `python -m tools.counted WORD`.

In: a command. Out: its exit code; whoever waits for this process is given the CPU time
of all processes that the command started. Those that it did not wait for, as a server
that forks ranks, become children of this process when their own parent ends. Called by
`part_queue`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
"""From linux/prctl.h: orphans below this process become its children."""
PATIENCE_S, POLL_S = 60.0, 0.05
"""For what the command leaves behind to end; it is not ended from here."""
CANNOT_START = 127
"""The exit code of a shell for a command that is not there."""


def main(words: list[str]) -> int:
    """Exit code of the command, 128 and the signal's number if one ended it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        command = subprocess.Popen(words)  # noqa: S603 - the commands of `gates`
    except OSError as error:
        print(f"cannot start {words[0]}: {error}")
        return CANNOT_START
    code = wait_for(command.pid)
    command.returncode = code
    stops_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < stops_s:
        try:
            found, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not found:
            time.sleep(POLL_S)
    return code if code >= 0 else 128 - code


def wait_for(wanted: int) -> int:
    """Exit code of one child, once it has ended; others are let go as they end."""
    while True:
        found, status = os.wait()
        if found == wanted:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
