"""The replayer as seen from outside: a plan goes in, a `Replay` comes out."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from plimsoll_planner.errors import DEBUG_VARIABLE
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import from_text, save
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.replay import Replay
from plimsoll_profiler.entrypoint_path import python_path, require_module
from plimsoll_profiler.errors import BadWorkloadError, ReplayFailedError
from plimsoll_trainer.emulated import device as emulated
from plimsoll_trainer.requirements import require_supported

OF_THE_WORKLOAD = (
    ExitCode.BAD_WORKLOAD,
    ExitCode.FOREIGN_FINGERPRINT,
    ExitCode.ENTRY_POINT_OUT_OF_MEMORY,
)
"""What the replayer ends with where the entry point cannot be used."""


def replay_plan(plan: HybridPlan, profile: ModelProfile, entrypoint: str) -> Replay:
    """Replay every stage of a plan in a process of its own.

    Args:
        plan: what to replay; it carries the arguments of the entry point.
        profile: what the plan was made from.
        entrypoint: `package.module:function`.

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
    with tempfile.TemporaryDirectory() as folder:
        paths = (Path(folder) / "plan.json", Path(folder) / "profile.json")
        save(paths[0], plan)
        save(paths[1], profile)
        done = subprocess.run(  # noqa: S603 - our own module
            (
                *(sys.executable, "-m", "plimsoll_profiler.replayer"),
                *("--plan", paths[0], "--profile", paths[1]),
                *("--entrypoint", entrypoint),
            ),
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | environment_of(plan.offers[0].device_kind),
        )
    if done.returncode == ExitCode.DONE:
        return from_text(done.stdout.splitlines()[-1], Replay)
    if os.environ.get(DEBUG_VARIABLE):
        sys.stderr.write(done.stderr)
    silent = f"it said nothing, exit status {done.returncode}"
    said = (done.stderr.strip().splitlines() or [silent])[-1]
    if done.returncode in OF_THE_WORKLOAD:
        raise BadWorkloadError(said)
    raise ReplayFailedError(f"the replay ended: {said}")


def environment_of(kind: DeviceKind) -> dict[str, str]:
    """Return what the replayer's environment needs on top.

    For the emulated device it is one, to see what kernels allocate inside.
    """
    extra = {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path()}
    return extra | (emulated.environment(0) if kind is DeviceKind.EMULATED else {})
