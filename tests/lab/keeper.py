"""The process that keeps one lab: starts it, watches its owner, takes it down.

Run as `python -m tests.lab.keeper LEVEL --nodes N [--owner PID]` by owner.py, in a
session of its own. Writes one line of JSON when the lab is ready ({"slot": 3}) or could
not be started ({"error": ...}), then watches. It ends, and the lab with it,

    when SIGTERM comes     the fixture is done, or `down`
    when its owner ends    also by SIGKILL; a lab of `up` has no owner

and if the keeper itself is killed, the kernel kills the parts (processes.py) and the
owner, or the next lab to start, sweeps up the rest (slots.py).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any, NoReturn

from tests.lab import build, control_plane, nodes, slots
from tests.lab.errors import LabError
from tests.lab.processes import OwnerGoneError, Processes, process_of

WATCH_S = 0.2


def main(arguments: list[str]) -> int:
    """Keep one lab from start to end."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    try:
        slots.sweep_abandoned()
        keep(options)
    except LabError as error:
        announce({"error": str(error)})
        return 1
    except OwnerGoneError:
        pass
    return 0


def keep(options: argparse.Namespace) -> None:
    """Start the lab and stay until its end."""
    binaries = build.find_binaries()
    if not binaries:
        raise LabError(
            "the lab's binaries are not built: run `make lab` or `make test`"
        )
    owner = process_of(options.owner) if options.owner else None
    started_s = time.monotonic()
    with (
        slots.take() as slot,
        Processes(slot=slot, binaries=binaries, owner=owner) as processes,
    ):
        facts: dict[str, Any] = {
            "keeper": os.getpid(),
            "detached": owner is None,
            "level": options.level,
            "binaries": str(binaries),
        }
        (slot.state / "lab.json").write_text(json.dumps(facts))
        if options.level == "control-plane":
            control_plane.start_on_loopback(processes)
        else:
            facts |= nodes.start(processes, num_nodes=options.nodes)
        facts["ready_s"] = round(time.monotonic() - started_s, 2)
        (slot.state / "lab.json").write_text(json.dumps(facts))
        announce({"slot": slot.number})
        while not processes.owner_is_gone(within_s=WATCH_S):
            processes.follow_holds()


def announce(message: dict[str, Any]) -> None:
    """Write to whoever started us, if it still listens."""
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        pass


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Leave through every `finally`; a second signal must not cut that short."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(0)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.keeper")
    parser.add_argument("level", choices=["control-plane", "nodes"])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--owner", type=int)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
