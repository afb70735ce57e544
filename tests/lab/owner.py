"""Starting and ending a lab from the outside: fixtures, `up` and `down`.

In: level and number of nodes. Out: a `Cluster` to work with. The lab itself is kept by
a process of its own (keeper.py), which ends with the process that started it unless the
lab is detached.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.lab import slots
from tests.lab.cluster import Cluster
from tests.lab.errors import LabError

ROOT = Path(__file__).parents[2]
DOWN_TIMEOUT_S = 120.0

Level = Literal["control-plane", "nodes"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lab:
    """A running lab and the process that keeps it."""

    cluster: Cluster
    keeper: subprocess.Popen[str]

    def close(self) -> None:
        """Take the lab down; also when its keeper has been killed."""
        self.keeper.terminate()
        self.keeper.wait()
        slots.sweep_abandoned()


def start(level: Level, *, num_nodes: int = 2, detached: bool = False) -> Lab:
    """Start a lab and return when it is ready.

    Raises:
        LabError: with the keeper's own words.
    """
    command = [sys.executable, "-m", "tests.lab.keeper", level, f"--nodes={num_nodes}"]
    if not detached:
        command.append(f"--owner={os.getpid()}")
    keeper = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a Ctrl-C in the terminal is for the owner alone
    )
    message = _first_message(keeper)
    if "error" in message:
        keeper.wait()
        raise LabError(message["error"])
    return Lab(cluster=Cluster.of(slots.ALL[message["slot"]]), keeper=keeper)


def _first_message(keeper: subprocess.Popen[str]) -> dict[str, Any]:
    """Announcement of the supervisor: one line of JSON after anything else."""
    lines = []
    assert keeper.stdout
    with keeper.stdout as output:
        for line in output:
            if line.startswith("{"):
                message: dict[str, Any] = json.loads(line)
                return message
            lines.append(line)
    return {"error": f"the keeper of the lab broke:\n{''.join(lines)}"}


def running() -> list[slots.Slot]:
    """Slots of all labs that are kept now."""
    return [slot for slot in slots.ALL if slots.is_taken(slot)]


def down(*, only: int | None = None) -> list[int]:
    """Take down labs of `up`, all or one, and return their numbers.

    Clears up after crashed labs as well.
    """
    ours = [slot for slot in running() if slot.facts().get("detached")]
    ended = [slot for slot in ours if only in {None, slot.number}]
    for slot in ended:
        os.kill(slot.facts()["keeper"], signal.SIGTERM)
    deadline_s = time.monotonic() + DOWN_TIMEOUT_S
    while any(slots.is_taken(slot) for slot in ended):
        if time.monotonic() > deadline_s:
            raise LabError(
                f"a lab is still there {DOWN_TIMEOUT_S:.0f} s after being told to end: "
                "`python -m tests.lab status` names its keeper, kill that"
            )
        time.sleep(0.1)
    slots.sweep_abandoned()
    return [slot.number for slot in ended]
