"""The command lines of what the loop starts: profiling, replaying, training.

In: a plan and the folder of the child. Out: a `Task`. The modules are named, never
imported: they run in processes of their own, with torch.
"""

from __future__ import annotations

import sys
from pathlib import Path

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.brain.request import ProfileWish
from plimsoll_operator.brain.seen import ChildKind
from plimsoll_operator.home.checkpoints import newest_step
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.task import Command, Task, Variable

PROFILER, TRAINER = "plimsoll_profiler", "plimsoll_trainer"
PLAN, PROFILE, STORE = "plan.json", "profile.json", "ranks.store"
KIB = 2**10


def report_of(folder: Path, rank: int) -> Path:
    """Return where a rank reports to."""
    return folder / f"report-{rank}.jsonl"


def profile_task(
    wish: ProfileWish, spec: TrainingPlanSpec, folder: Path, code: str
) -> Task:
    """Return what profiles a workload into `PROFILE`.

    Args:
        wish: what is to be profiled.
        spec: of the plan.
        folder: of the child.
        code: where the workload's module is found.
    """
    words = (
        *(sys.executable, "-m", PROFILER, "profile"),
        *("--entrypoint", wish.entrypoint, "--args", wish.arguments),
        *("--device", wish.device_kind, "--source", wish.source),
        *("--request-key", wish.key, "--out", str(folder / PROFILE)),
    )
    return Task(
        child_kind=ChildKind.PROFILE,
        subject=wish.key,
        commands=(Command(words=words),),
        folder=code,
        timeout_s=float(spec.profile.timeout_seconds),
    )


def replay_task(digest: str, spec: TrainingPlanSpec, folder: Path, code: str) -> Task:
    """Return what replays the plan in `PLAN`, made from `PROFILE`."""
    words = (
        *(sys.executable, "-m", PROFILER, "replay"),
        *("--entrypoint", spec.workload.entrypoint),
        *("--plan", str(folder / PLAN), "--profile", str(folder / PROFILE)),
    )
    return Task(
        child_kind=ChildKind.REPLAY,
        subject=digest,
        commands=(Command(words=words),),
        folder=code,
        timeout_s=float(spec.profile.timeout_seconds),
    )


def train_task(
    attempt: int,
    plan: HybridPlan,
    spec: TrainingPlanSpec,
    folder: Path,
    code: str,
    *,
    checkpoints: Path,
    device_memory_bytes: int = 0,
) -> Task:
    """Return the gang that trains by the plan in `PLAN`.

    Args:
        attempt: number of the attempt.
        plan: of record.
        spec: of the plan.
        folder: of the child.
        code: where the workload's module is found.
        checkpoints: where the job saves, and goes on from.
        device_memory_bytes: of emulated devices that have less than planned; else 0.
    """
    given = {
        "--plan": folder / PLAN,
        "--entrypoint": spec.workload.entrypoint,
        "--steps": spec.training.steps,
        "--store-file": folder / STORE,
        "--checkpoint-dir": checkpoints,
        "--checkpoint-every": spec.checkpoint.every_steps,
        "--attempt": attempt,
        "--report-file": report_of(folder, 0).with_name("report-{rank}.jsonl"),
    }
    if device_memory_bytes:
        given["--device-memory"] = f"{device_memory_bytes // KIB}KiB"
    if spec.checkpoint.resume_from and newest_step(checkpoints) is None:
        given["--resume-from"] = Path(code) / spec.checkpoint.resume_from
    words = tuple(str(word) for pair in given.items() for word in pair)
    num_ranks = plan.num_gpus
    return Task(
        child_kind=ChildKind.TRAIN,
        subject=str(attempt),
        commands=tuple(
            Command(
                words=(sys.executable, "-m", TRAINER, *words),
                variables=(
                    Variable(name="RANK", value=str(rank)),
                    Variable(name="LOCAL_RANK", value=str(rank)),
                    Variable(name="WORLD_SIZE", value=str(num_ranks)),
                ),
            )
            for rank in range(num_ranks)
        ),
        folder=code,
    )
