"""Whether a disk has room for the checkpoint of a job that is asked to leave.

Ranks that cannot save would leave all the same, and what they have trained is lost;
those that were not asked yet train on until there is room.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from plimsoll_operator.errors import DiskFullError
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.units import at_least


def checkpoint_bytes(profile: ModelProfile) -> int:
    """Return the bytes of all tensors in a checkpoint, those that are shared once."""
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


def check_room(folder: Path, num_bytes: int) -> None:
    """Refuse a save that a disk has no room for.

    Args:
        folder: to save in; it may not be there yet.
        num_bytes: of the checkpoint.

    Raises:
        DiskFullError: saying how much room is wanted.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if shutil.disk_usage(there).free < num_bytes:
        raise DiskFullError(
            f"no room in {folder} for a checkpoint of {at_least(num_bytes)}: "
            "the disk is full, make room"
        )
