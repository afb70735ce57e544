"""Room for a checkpoint: whether a failed save lacked it, and how to wait for it.

Called by `saver` where a save has failed, and by `checkpointing` at the end of a
training: what is trained is not lost for want of room, so all ranks wait for it.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from plimsoll_planner.errors import DISK_FULL
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.errors import causes

FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 60.0
"""Between two tries of a save, also where a disk says that it has room: of a quota it
does not know."""
POLL_S = 0.5


def lacks_room(error: Exception, folder: Path, num_bytes: int) -> bool:
    """Whether a save failed because the disk is full.

    What torch's writer raises on a full disk does not say so; the disk does.
    """
    if any(isinstance(e, OSError) and e.errno in DISK_FULL for e in causes(error)):
        return True
    is_torchs = isinstance(error, RuntimeError)
    return is_torchs and folder.exists() and free_bytes(folder) < num_bytes


def free_bytes(folder: Path) -> int:
    """Room on the disk of a folder; none where it is gone."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def wait_for_room(
    folder: Path, num_bytes: int, least_s: float, control: Control
) -> None:
    """Wait for some seconds, and until a folder has room; all ranks together."""
    end_s = time.monotonic() + least_s
    while any(
        control.any_of(time.monotonic() < end_s or free_bytes(folder) < num_bytes)
    ):
        time.sleep(POLL_S)
