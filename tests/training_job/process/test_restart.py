"""A process that starts itself again stays what it was."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import os, signal, sys
from plimsoll_trainer.process.restart import start_again
from plimsoll_trainer.process.stopping import StopSignal
stop = StopSignal()
stop.listen()
if "AGAIN" in os.environ:
    print(stop.is_set, os.environ["AGAIN"] == str(os.getpid()), sys.argv[1:])
else:
    if "asked" in sys.argv:
        signal.raise_signal(signal.SIGTERM)
    start_again({"AGAIN": str(os.getpid())}, stop)
"""


def run_twice(*words: str) -> str:
    """Run the code; return what it says the second time."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words],
        env={k: v for k, v in os.environ.items() if k != "AGAIN"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_it_is_the_same_process_with_the_same_words() -> None:
    """Torchrun waits for its number, and finds its exit code."""
    assert run_twice("--steps", "3") == "False True ['--steps', '3']"


def test_a_request_to_stop_is_not_lost() -> None:
    """It came before, and is answered after."""
    assert run_twice("asked") == "True True ['asked']"
