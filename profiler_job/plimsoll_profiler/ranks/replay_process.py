"""The replayer as seen from outside: a plan goes in, a `Replay` comes out.

On the way, the ranks that are replayed already are counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from plimsoll_planner.errors import DEBUG_VARIABLE
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import from_text, save
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.replay import Replay
from plimsoll_profiler.entrypoint_path import require_module
from plimsoll_profiler.errors import BadWorkloadError, ReplayFailedError
from plimsoll_profiler.process_environment import command_of, environment_of
from plimsoll_trainer.process.requirements import require_supported

OF_THE_WORKLOAD = (
    ExitCode.BAD_WORKLOAD,
    ExitCode.FOREIGN_FINGERPRINT,
    ExitCode.ENTRY_POINT_OUT_OF_MEMORY,
)
"""Exit codes of a replayer that cannot use the entry point."""

PROGRESS = '{"done": '
"""Beginning of a line of progress."""
OnProgress = Callable[[int, int], None]
"""(ranks replayed, ranks in all)"""


def ignore(done: int, total: int) -> None:
    """Show no progress."""


def replay_plan(
    plan: HybridPlan,
    profile: ModelProfile,
    entrypoint: str,
    on_progress: OnProgress = ignore,
) -> Replay:
    """Replay every stage of a plan in a process of its own.

    Raises:
        BadWorkloadError: the entry point cannot be used, or not for this plan and
            profile.
        ReplayFailedError: the replayer ended for another reason.
        NoEmulatedDeviceError: the plan is for emulated devices, and there is no
            compiler for the library.
        IncompatibleError: torch or numpy are missing or too old.
    """
    require_supported()
    require_module(entrypoint)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile("w+") as stderr,
    ):
        paths = (Path(folder) / "plan.json", Path(folder) / "profile.json")
        save(paths[0], plan)
        save(paths[1], profile)
        with subprocess.Popen(  # noqa: S603 - our own module
            (
                *command_of("replayer"),
                *("--plan", paths[0], "--profile", paths[1]),
                *("--entrypoint", entrypoint),
            ),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=os.environ | environment_of(plan.offers[0].device_kind),
        ) as process:
            last = last_line(process.stdout or (), on_progress)
        stderr.seek(0)
        complaints = stderr.read()
    if process.returncode == ExitCode.DONE:
        return from_text(last, Replay)
    if os.environ.get(DEBUG_VARIABLE):
        sys.stderr.write(complaints)
    silent = f"it said nothing, exit status {process.returncode}"
    reason = (complaints.strip().splitlines() or [silent])[-1]
    if process.returncode in OF_THE_WORKLOAD:
        raise BadWorkloadError(reason)
    raise ReplayFailedError(f"the replay ended: {reason}")


def last_line(lines: Iterable[str], on_progress: OnProgress) -> str:
    """Last of the lines that are no progress: the replay."""
    last = ""
    for line in lines:
        if line.startswith(PROGRESS):
            found = json.loads(line)
            on_progress(found["done"], found["total"])
        else:
            last = line
    return last
