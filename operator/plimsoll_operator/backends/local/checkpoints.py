"""Checkpoints as the local back end sees them: which is the newest, how large they are.

Ranks that are asked to leave and cannot save would leave all the same, and what they
have trained would be lost; those that were not asked yet train on until there is room.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from plimsoll_operator.backends.local.state_dir import PlanFolder
from plimsoll_operator.errors import DiskFullError
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.units import at_least

COMMITTED = re.compile(r"step-(\d{8,})")
"""As the trainer names a checkpoint that is whole."""


def checkpoints_of(plan: StoredPlan, folder: PlanFolder) -> Path:
    """The folder in which a plan's job saves."""
    path = plan.spec.checkpoint.path
    return Path(plan.folder) / path / plan.uid if path else folder.checkpoints


def checkpoint_bytes(profile: ModelProfile) -> int:
    """The bytes of all tensors in a checkpoint, those that are shared once."""
    costs = profile.costs
    columns = (costs.parameter_bytes, costs.buffer_bytes, costs.optimizer_bytes)
    state: dict[int, int] = {}
    for kind, *sizes in zip(costs.kind, *columns, strict=True):
        state.setdefault(kind, sum(sizes))  # its first variant: whole layers
    total = sum(state[kind] for kind in profile.layers.kind)
    for tie in profile.tied:
        shared = tie.parameter_bytes + tie.buffer_bytes + tie.optimizer_bytes
        total -= (len(tie.layers) - 1) * shared
    return total


def newest_step(folder: Path) -> int | None:
    """The step of the newest checkpoint in a folder, None without one."""
    names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
    found = (COMMITTED.fullmatch(name) for name in names)
    return max((int(match[1]) for match in found if match), default=None)


def holds_checkpoint(folder: Path) -> bool:
    """Whether a folder is a checkpoint, or has one."""
    is_one = folder.is_dir() and COMMITTED.fullmatch(folder.name) is not None
    return is_one or newest_step(folder) is not None


def check_room(folder: Path, num_bytes: int) -> None:
    """Refuse a save that a disk has no room for; the folder may not be there yet.

    Raises:
        DiskFullError: with how much room is wanted.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if shutil.disk_usage(there).free < num_bytes:
        raise DiskFullError(
            f"no room in {folder} for a checkpoint of {at_least(num_bytes)}: "
            "the disk is full, make room"
        )
