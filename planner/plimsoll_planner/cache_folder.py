"""The folder for what can be made again: profiles, tokens, the emulated device.

In: the environment. Out: a path, which need not be there yet. Called by the command,
and by the trainer, which may be alone on its machine.
"""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll_planner.pod_names import CACHE_VARIABLE


def cache_folder() -> Path:
    """Folder that `PLIMSOLL_CACHE` names, else `plimsoll` in the user's cache."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given).absolute()  # workers may run in other folders
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "plimsoll"
