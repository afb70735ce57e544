"""The lab by hand: `python -m tests.lab prepare | up | down | status`.

Runs on the standard library alone, before the project's environment is there.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.lab import owner
from tests.lab.errors import LabError
from tests.lab.owner import Level
from tests.lab.prepare import prepare
from tools.part_queue import NOT_HERE


def main() -> int:
    """Run one command; its exit status says whether it worked, or cannot work here."""
    options = _parse()
    try:
        match options.command:
            case "prepare":
                _prepare()
            case "up":
                _up(options)
            case "down":
                for number in (ended := owner.down(only=options.lab)):
                    print(f"down: lab {number}")
                if not ended:
                    print("down: no such lab is running")
            case "status":
                _status()
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return NOT_HERE
    return 0


def _prepare() -> None:
    if os.geteuid():
        prepare(_say, level="control-plane")
        print("nodes: left out, they need root (`sudo make test`)")
    else:
        prepare(_say, level="nodes")


def _up(options: argparse.Namespace) -> None:
    level: Level = "control-plane" if options.control_plane_only else "nodes"
    if level == "nodes" and os.geteuid():
        print("nodes: left out, they need root (`sudo make lab`)")
        level = "control-plane"
    prepare(_say, level=level)
    cluster = owner.start(level, num_nodes=options.nodes, detached=True).cluster
    what = f"{len(cluster.nodes)} nodes" if cluster.nodes else "control plane"
    print(f"{what}: ready in {cluster.ready_s:.1f} s (lab {cluster.slot.number})")
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    print(f"export PATH={cluster.binaries}:$PATH")


def _status() -> None:
    for slot in owner.running():
        facts = slot.facts()
        kind = "up" if facts.get("detached") else "tests"
        ready = f"ready in {facts['ready_s']} s" if "ready_s" in facts else "starting"
        print(
            f"lab {slot.number}: {facts.get('level', '?')} of {kind}, {ready}, "
            f"keeper {facts.get('keeper', '?')}, {slot.state}/kubeconfig"
        )
    if not owner.running():
        print("no lab is running")


def _say(line: str) -> None:
    print(line, flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="build and install what labs need")
    up = commands.add_parser("up", help="start a lab that stays")
    up.add_argument("--nodes", type=int, default=2, help="real nodes (default: 2)")
    up.add_argument("--control-plane-only", action="store_true", help="needs no root")
    down = commands.add_parser("down", help="end the labs that `up` started")
    down.add_argument("--lab", type=int, help="only this one, as `status` numbers it")
    commands.add_parser("status", help="list running labs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
