"""Control groups of the nodes: made before a kubelet starts, removed after it.

Only the layout differs between version 1 (a folder per controller) and version 2 (one
folder). Version 2 has not been run: the lab was written on a machine with version 1.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS_V1 = (
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "pids",
    "systemd",
    "unified",  # kubelets make a group here as well
)


def make(name: str) -> None:
    """Make the group `name` in every hierarchy, ready to hold processes."""
    if (MOUNT / "cgroup.controllers").exists():
        with contextlib.suppress(OSError):  # "busy" where systemd has done it
            (MOUNT / "cgroup.subtree_control").write_text("+cpu +cpuset +memory +pids")
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)
        if hierarchy.name == "cpuset":
            # A new cpuset is empty, and no process can enter an empty one.
            for part in ("cpuset.cpus", "cpuset.mems"):
                (hierarchy / name / part).write_text((hierarchy / part).read_text())


def find(pattern: str) -> list[Path]:
    """Groups that match, in all hierarchies."""
    return [group for each in _hierarchies() for group in each.glob(pattern)]


def remove(pattern: str) -> None:
    """Remove matching groups and those below, as far as no process is left in them."""
    for group in find(pattern):
        below = [path for path in group.rglob("*") if path.is_dir()]
        for path in [*sorted(below, reverse=True), group]:
            with contextlib.suppress(OSError):
                path.rmdir()


def _hierarchies() -> list[Path]:
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    return [MOUNT / name for name in CONTROLLERS_V1 if (MOUNT / name).is_dir()]
