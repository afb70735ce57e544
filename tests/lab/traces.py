"""Everything on this machine that belongs to one lab: what must be gone after it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.lab import cgroups
from tests.lab.slots import Slot


@dataclass(frozen=True, kw_only=True, slots=True)
class Traces:
    """Traces of a lab, found while it runs and looked for again after its end."""

    slot: Slot
    processes: frozenset[tuple[int, str]]
    """Process id and start time, so that a reused id is no trace."""

    @classmethod
    def of(cls, slot: Slot, keeper: int) -> Traces:
        """Traces of a running lab: its keeper, all below, all inside."""
        parents = {int(pid): _status(pid)[1] for pid in _pids()}
        below = {keeper}
        while more := {pid for pid, up in parents.items() if up in below} - below:
            below |= more
        # Orphans of a process namespace belong to nobody below the keeper.
        spaces = {_namespace(pid) for pid in below} - {_namespace(os.getpid()), None}
        inside = {pid for pid in parents if _namespace(pid) in spaces}
        found = ((pid, _status(str(pid))[2]) for pid in below | inside)
        return cls(slot=slot, processes=frozenset(each for each in found if each[1]))

    def left(self) -> list[str]:
        """Remains, in words."""
        mounts = Path("/proc/self/mounts").read_text()
        alive = [
            f"process {pid}" for pid, start in self.processes if _lives(pid, start)
        ]
        files = [path for path in (self.slot.state, self.slot.lock) if path.exists()]
        groups = cgroups.find(f"plimsoll-{self.slot.number}-node*")
        named = {
            "link": (self.slot.host_link, output_of("ip", "link")),
            "route": (str(self.slot.pods), output_of("ip", "route")),
            "mount": (str(self.slot.state), mounts),
            "rule": ("kube-proxy", output_of("nft", "list", "ruleset")),
        }
        return [
            *alive,
            *map(str, [*files, *groups]),
            *(f"{kind} {name}" for kind, (name, text) in named.items() if name in text),
        ]


def output_of(program: str, *arguments: str) -> str:
    """Output of a program of the system; nothing if there is none.

    Without root a lab has no link, no route and no rule, and these programs may be
    missing, or lie in a folder that only root's PATH has.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    if not (found := shutil.which(program, path=path)):
        return ""
    done = subprocess.run(
        [found, *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout


def _pids() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]


def _status(pid: str) -> tuple[str, int, str]:
    """State letter, parent and start time; a dead process has none of them."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return fields[0], int(fields[1]), fields[19]
    return "X", 0, ""


def _lives(pid: int, start: str) -> bool:
    state, _, started = _status(str(pid))
    return started == start and state != "Z"


def _namespace(pid: int) -> str | None:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return None
