"""Starts a process that loads torch: `python -m plimsoll_profiler.start NAME ...`.

Torch makes 300,000 objects that stay; while it loads nothing looks for garbage among
them, which is a fifth of its time. They are not frozen, as a rank's are
(`plimsoll_trainer.__main__`): `counting.meters` freezes what is there, for a while.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable


def main() -> int:
    """Load the process that the first argument names, and be it."""
    name = sys.argv.pop(1)
    gc.disable()
    run = loaded(name)
    gc.enable()
    return run()


def loaded(name: str) -> Callable[[], int]:
    """Import a process; it is one of ours."""
    match name:
        case "prober":
            from plimsoll_profiler.probing.prober import main as run  # noqa: PLC0415
        case "grapher":
            from plimsoll_profiler.probing.grapher import main as run  # noqa: PLC0415
        case "replayer":
            from plimsoll_profiler.ranks.replayer import main as run  # noqa: PLC0415
        case "rehearser":
            from plimsoll_profiler.ranks.rehearser import main as run  # noqa: PLC0415
        case _:
            sys.exit(f"plimsoll_profiler.start: there is no process {name!r}")
    return run


if __name__ == "__main__":
    sys.exit(main())
