"""Runs a command and waits for what it leaves behind: `python -m tools.counted WORD`.

In: a command. Out: its exit code; whoever waits for this process is given the CPU time
of all processes that the command started. Those that it did not wait for, as a server
that forks ranks, become children of this process when their own parent ends. Called by
`part_queue`, which ends it by SIGTERM; it is sent that too when its parent ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time

import psutil

from tools.ci import IN_CI

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""From linux/prctl.h: a signal when the parent ends; orphans below become children."""
PATIENCE_S, POLL_S = 60.0, 0.05
"""For what the command leaves behind to end; it is not ended from here."""
STOP_S = 30.0
"""For a stopped command and what it started to clean up; then all is killed."""
CANNOT_START = 127
"""The exit code of a shell for a command that is not there."""


def main(words: list[str]) -> int:
    """Exit code of the command, 128 and the signal's number if one ended it."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    signal.signal(signal.SIGINT, lambda *_: None)  # sent from here to all of the group
    os.setpgid(0, 0)
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    try:
        command = subprocess.Popen(words)  # noqa: S603 - the commands of `gates`
    except OSError as error:
        print(f"cannot start {words[0]}: {error}")
        return CANNOT_START
    codes: dict[int, int] = {}
    stops_s = None
    while reap(codes) and not asked:
        if command.pid in codes and stops_s is None:
            stops_s = time.monotonic() + PATIENCE_S
        if stops_s is not None and time.monotonic() > stops_s:
            break
        time.sleep(POLL_S)
    if asked:
        stop(command.pid, codes, asked)
        return 128 + asked[0]
    command.returncode = code = codes[command.pid]
    if left := psutil.Process().children(recursive=True):
        print(*map(described, left), sep="\n")
        code = code or int(IN_CI)
    return code if code >= 0 else 128 - code


def reap(codes: dict[int, int]) -> bool:
    """Whether any child is left; notes the exit codes of those that have ended."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        return False
    return True


def stop(command: int, codes: dict[int, int], asked: list[int]) -> None:
    """End a command as Ctrl-C does, then what outlives it; at once if asked again.

    Args:
        command: its process.
        codes: of children that have ended; grows.
        asked: signals that came; grows.
    """
    stops_s, is_signalled = time.monotonic() + STOP_S, False
    os.killpg(0, signal.SIGINT)
    while reap(codes) and len(asked) == 1 and time.monotonic() < stops_s:
        if command in codes and not is_signalled:
            is_signalled = True
            send_all(signal.SIGTERM)
        time.sleep(POLL_S)
    while reap(codes):
        send_all(signal.SIGKILL)
        time.sleep(POLL_S)


def send_all(number: signal.Signals) -> None:
    """Send a signal to every process below this one."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def described(process: psutil.Process) -> str:
    """One that was left behind, for a person."""
    try:
        words = shlex.join(process.cmdline()) or process.name()
    except psutil.NoSuchProcess:
        words = "which has ended meanwhile"
    return (
        f"left behind, and still there {PATIENCE_S:g} s later: {process.pid}, {words}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
