"""Runs `plimsoll`, and is disturbed by the first thing that it does for a plan.

`python -m tests.support.disturbed_run die FILE WORDS...` adds the name of that thing to
FILE, and is killed right after it. With `stop` in the place of `die`, somebody presses
Ctrl-C in the middle of the first thing whose name is not in FILE.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from plimsoll_cli.__main__ import main
from plimsoll_operator.backends.executor import Executor
from plimsoll_operator.backends.local.loop import WAITING
from plimsoll_operator.rules.actions import Action

FILE = Path(sys.argv[2])
apply = Executor.apply


def noted() -> list[str]:
    """Lines that were written down."""
    return FILE.read_text().split() if FILE.exists() else []


KNOWN = noted()


def disturb(action: Action, number: signal.Signals) -> None:
    """Write down what is disturbed, and disturb it."""
    with FILE.open("a") as lines:
        lines.write(f"{type(action).__name__}\n")
    os.kill(os.getpid(), number)


async def apply_and_die(self: Executor, action: Action) -> None:
    """Act, and leave nobody time for anything else."""
    await apply(self, action)
    if not isinstance(action, WAITING):
        disturb(action, signal.SIGKILL)


async def stop_and_apply(self: Executor, action: Action) -> None:
    """Ask for a stop once, at something new, and act."""
    is_new = not isinstance(action, WAITING) and type(action).__name__ not in KNOWN
    if is_new and noted() == KNOWN:
        disturb(action, signal.SIGINT)
    await apply(self, action)


if __name__ == "__main__":
    disturbed = apply_and_die if sys.argv[1] == "die" else stop_and_apply
    Executor.apply = disturbed  # type: ignore[method-assign]
    sys.exit(main(sys.argv[3:]))
