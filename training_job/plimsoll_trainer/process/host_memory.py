"""Whether this machine has the memory that is planned on the host.

In: what the ranks of a job take, and what the kernel says is there. Out: a refusal, or
a warning with both numbers. Called by `run` before anything is built, and by the
profiler where it rehearses one rank. Ranks on one machine, or in one pod, take from the
same memory, so their needs are added up.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll_planner.units import at_least, at_most
from plimsoll_trainer.devices.allocator import pinned_block
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.flat_buffers import Share
from plimsoll_trainer.engine.host_bytes import host_bytes
from plimsoll_trainer.engine.world import World
from plimsoll_trainer.errors import HostFullError
from plimsoll_trainer.process.assignment import Assignment
from plimsoll_trainer.workload import Workload

Warn = Callable[[str], None]
MEMINFO = Path("/proc/meminfo")
OWN_GROUP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
LIMITS = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Files with the limit of a group and its use, version 2 and 1; "max" is none."""
RECLAIMED = ("active_file", "inactive_file")
"""Bytes of a group's use that the kernel gives up for more: copies of files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """Memory that a rank takes of its machine, and what is there before any does."""

    machine: str
    needed_bytes: int
    pinned_bytes: int = 0
    """Of those, what is to be pinned."""
    free_bytes: int


def check_host_memory(
    workload: Workload,
    assignment: Assignment,
    world: World,
    control: Control,
    warn: Warn,
    held_bytes: int = 0,
) -> Need | None:
    """Refuse what a machine has no room for; all ranks call this together.

    `held_bytes` are taken by this rank already, and then used for what is needed.

    Returns:
        The need of this rank, if any rank of the job has one.

    Raises:
        HostFullError: says how much is needed where, and how much is there.
    """
    if not any(part.uses_host for part in assignment.slices):
        return None
    need = need_of(workload, assignment, world)
    need = replace(need, needed_bytes=max(need.needed_bytes - held_bytes, 0))
    require_room(control.gather(need))
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if is_below(limit_bytes, need.pinned_bytes):
        warn(
            f"{at_least(need.pinned_bytes)} of host memory are to be pinned, and "
            f"RLIMIT_MEMLOCK lets this process lock {at_most(limit_bytes)}: if a line "
            "says that they could not be, raise it (ulimit -l unlimited)"
        )
    return need


def need_of(workload: Workload, assignment: Assignment, world: World) -> Need:
    """Memory that this rank takes."""
    share = Share(replica=world.replica, num_replicas=world.num_replicas)
    taken = host_bytes(
        workload, assignment.slices[world.stage], share, world.tensor_mesh
    )
    blocks = [
        pinned_block(size, os.environ) if world.device.type == "cuda" else size
        for size in taken.pinned
    ]
    return Need(
        machine=socket.gethostname(),
        needed_bytes=taken.needed - sum(taken.pinned) + sum(blocks),
        pinned_bytes=sum(blocks) if world.device.type == "cuda" else 0,
        free_bytes=free_bytes(),
    )


def require_room(needs: Sequence[Need]) -> None:
    """Refuse ranks that take more than their machine has.

    Raises:
        HostFullError: of the first machine.
    """
    for machine in dict.fromkeys(need.machine for need in needs):
        here = [need for need in needs if need.machine == machine]
        needed = sum(need.needed_bytes for need in here)
        free = min(need.free_bytes for need in here)
        if needed > free:
            raise HostFullError(
                "the plan keeps optimizers or activations in host memory, which takes "
                f"{at_least(needed)} of {machine} for the ranks there, and "
                f"{at_most(free)} are free: plan with --optimizer-home device and "
                "--offload none (`spec.override`), or run on a machine, or in pods, "
                "with more memory"
            )


def warn_of_pageable(unpinned_bytes: int, warn: Warn) -> None:
    """Report memory that could not be pinned, if there is any."""
    if unpinned_bytes:
        warn(
            f"{at_least(unpinned_bytes)} of host memory could not be "
            "pinned, so copies from and to the GPU are slower: raise what may be "
            "locked (ulimit -l), or free memory of the machine"
        )


def is_below(limit_bytes: int, wanted_bytes: int) -> bool:
    """Whether a limit of this process is less than what is wanted."""
    return limit_bytes != resource.RLIM_INFINITY and limit_bytes < wanted_bytes


def free_bytes() -> int:
    """Memory that this process may still take: of the machine, and of each group.

    A group of processes, such as a container, is in others that may have limits too.
    """
    free = 1024 * number_in(MEMINFO, "MemAvailable:")
    for folder in groups_of(OWN_GROUP.read_text().splitlines()):
        for limit, used in LIMITS:
            files = folder / limit, folder / used
            if all(file.exists() for file in files):
                most, now = (file.read_text().strip() for file in files)
                if most.isdecimal():
                    stat = folder / "memory.stat"
                    reclaimed = sum(number_in(stat, name) for name in RECLAIMED)
                    free = min(free, int(most) - int(now) + reclaimed)
    return max(free, 0)


def groups_of(lines: Iterable[str]) -> Iterable[Path]:
    """Yield the folders of this process's groups that limit memory, inside out.

    Lines are `number:controllers:path`; version 2 names no controllers. Inside of a
    container the path may be that of the machine, which is not there.
    """
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            root = CGROUPS / controllers
            folder = root / path.lstrip("/")
            yield from (one for one in (folder, *folder.parents) if root in one.parents)
            yield root


def number_in(path: Path, name: str) -> int:
    """A number in a file of names and numbers; 0 if it is not there."""
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.split() for line in lines)
    return next((int(pair[1]) for pair in pairs if pair[0] == name), 0)
