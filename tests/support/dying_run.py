"""Runs `plimsoll`, and dies right after the first thing that it does for a plan.

`python -m tests.support.dying_run FILE WORDS...` adds the name of that thing to FILE.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from plimsoll_cli.__main__ import main
from plimsoll_operator.brain.actions import Action
from plimsoll_operator.home.hands import Hands
from plimsoll_operator.home.loop import WAITING

act = Hands.act


async def act_and_die(self: Hands, action: Action) -> None:
    """Act, say what was done, and leave nobody time for anything else."""
    await act(self, action)
    if not isinstance(action, WAITING):
        die(type(action).__name__)


def die(done: str) -> None:
    """Write down what was done, and end at once."""
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{done}\n")
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Hands.act = act_and_die  # type: ignore[method-assign]
    sys.exit(main(sys.argv[2:]))
