"""One command runs a plan; whoever looks at it hinders nobody."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from plimsoll_operator.backends.local.state_dir import StateFolder
from plimsoll_operator.errors import AlreadyRunningError

HOLDS = """
import sys, time, pathlib
from plimsoll_operator.backends.local.state_dir import StateFolder
with StateFolder(pathlib.Path(sys.argv[1])).locked("chain"):
    print("held", flush=True)
    time.sleep(60)
"""
LOOKERS, RUNS = 2, 50


@pytest.fixture
def home(tmp_path: Path) -> StateFolder:
    """A home in which nothing was ever run."""
    return StateFolder(tmp_path / "home")


def test_a_plan_is_run_as_long_as_its_command_lives(home: StateFolder) -> None:
    """Also where that is killed; and whoever asks leaves no trace."""
    assert not home.is_run("chain")
    assert not home.root.exists()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(home.root)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert home.is_run("chain")
    assert not home.is_run("other")
    said = f"by process {holder.pid}: "
    with pytest.raises(AlreadyRunningError, match=said), home.locked("chain"):
        pass
    holder.kill()
    holder.communicate()
    assert not home.is_run("chain")


def test_a_command_that_begins_while_somebody_looks_is_not_refused(
    home: StateFolder,
) -> None:
    """However often, and where a look takes long for want of a core."""
    with home.locked("chain"):
        pass
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            home.is_run("chain")

    lookers = [threading.Thread(target=look) for _ in range(LOOKERS)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(RUNS):
            with home.locked("chain"):
                assert home.is_run("chain")
    finally:
        done.set()
        for looker in lookers:
            looker.join()
    with (home.root / "locks/chain").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        slow = threading.Timer(0.1, lambda: fcntl.flock(file, fcntl.LOCK_UN))
        slow.start()
        with home.locked("chain"):
            pass
        slow.join()
