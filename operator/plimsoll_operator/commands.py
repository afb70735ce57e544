"""The command lines of what the loop starts: profiling, replay, rehearsal, training.

In: what is wanted, and where its files will lie. Out: a `Task`. The modules are named,
never imported: they run in processes of their own, with torch, at home or in a pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.brain.request import ProfileWish
from plimsoll_planner.pod_names import report_name
from plimsoll_planner.records.task import ChildKind, Command, Task, Variable

PROFILER, TRAINER = "plimsoll_profiler", "plimsoll_trainer"
PLAN, PROFILE = "plan.json", "profile.json"
KIB = 2**10


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """Where a child runs."""

    folder: Path
    """Of the child: its inputs, results and reports."""
    code: str = ""
    """Folder that the workload's module is found from; empty: where a pod begins."""
    interpreter: tuple[str, ...] = ()
    """Opens every command; empty: a pod knows its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gang:
    """The ranks of an attempt that one keeper keeps."""

    attempt: int
    num_ranks: int
    """Of all keepers together."""
    num_local: int
    """Of this one."""
    meeting: tuple[str, str]
    """The trainer's option by which ranks find each other, and its value."""
    checkpoints: Path | None
    """Where the job saves, and goes on from; None: nowhere."""
    resume_from: Path | None = None
    """Checkpoints of another plan, to begin with."""
    device_memory_bytes: int = 0
    """Of emulated devices that have less than planned; else 0."""


def report_of(folder: Path, rank: int) -> Path:
    """Return where a rank reports to."""
    return folder / report_name(rank)


def profile_task(wish: ProfileWish, spec: TrainingPlanSpec, where: Where) -> Task:
    """Return what profiles a workload into `PROFILE`."""
    words = (
        *(*where.interpreter, "-m", PROFILER, "profile"),
        *("--entrypoint", wish.entrypoint, "--args", wish.arguments),
        *("--device", wish.device_kind, "--source", wish.source),
        *("--request-key", wish.key, "--out", str(where.folder / PROFILE)),
    )
    return Task(
        child_kind=ChildKind.PROFILE,
        subject=wish.key,
        commands=(Command(words=words),),
        folder=where.code,
        timeout_s=float(spec.profile.timeout_seconds),
    )


def replay_task(digest: str, spec: TrainingPlanSpec, where: Where) -> Task:
    """Return what replays the plan in `PLAN`, made from `PROFILE`."""
    return plan_task(ChildKind.REPLAY, "replay", digest, spec, where)


def rehearsal_task(
    digest: str, spec: TrainingPlanSpec, where: Where, device_memory_bytes: int = 0
) -> Task:
    """The task of rehearsing the fullest rank of the plan in `PLAN`.

    Args:
        digest: of the plan.
        spec: what a person asks for.
        where: it runs.
        device_memory_bytes: of emulated devices that have less than planned; else 0.
    """
    less = ("--device-memory", str(device_memory_bytes)) if device_memory_bytes else ()
    return plan_task(ChildKind.REHEARSAL, "rehearse", digest, spec, where, less)


def plan_task(
    kind: ChildKind,
    verb: str,
    digest: str,
    spec: TrainingPlanSpec,
    where: Where,
    more: tuple[str, ...] = (),
) -> Task:
    """The task of a verb of the profiler on the plan in `PLAN`, made from `PROFILE`."""
    words = (
        *(*where.interpreter, "-m", PROFILER, verb),
        *("--entrypoint", spec.workload.entrypoint),
        *("--plan", str(where.folder / PLAN)),
        *("--profile", str(where.folder / PROFILE)),
        *more,
    )
    return Task(
        child_kind=kind,
        subject=digest,
        commands=(Command(words=words),),
        folder=where.code,
        timeout_s=float(spec.profile.timeout_seconds),
    )


def train_task(gang: Gang, spec: TrainingPlanSpec, where: Where) -> Task:
    """Return the ranks that train by the plan in `PLAN`."""
    given: dict[str, object] = {
        "--plan": where.folder / PLAN,
        "--entrypoint": spec.workload.entrypoint,
        "--steps": spec.training.steps,
        gang.meeting[0]: gang.meeting[1],
        # Whoever has a place waits as long as others may look for theirs.
        "--meet-timeout-s": spec.run_policy.pending_seconds,
        "--attempt": gang.attempt,
        "--report-file": where.folder / report_name("{rank}"),
    }
    if gang.checkpoints is not None:
        given["--checkpoint-dir"] = gang.checkpoints
        given["--checkpoint-every"] = spec.checkpoint.every_steps
    if gang.resume_from is not None:
        given["--resume-from"] = gang.resume_from
    if gang.device_memory_bytes:
        given["--device-memory"] = f"{gang.device_memory_bytes // KIB}KiB"
    words = tuple(str(word) for pair in given.items() for word in pair)
    return Task(
        child_kind=ChildKind.TRAIN,
        subject=str(gang.attempt),
        commands=tuple(
            Command(
                words=(*where.interpreter, "-m", TRAINER, *words),
                variables=(
                    Variable(name="RANK", value=str(local)),
                    Variable(name="LOCAL_RANK", value=str(local)),
                    Variable(name="WORLD_SIZE", value=str(gang.num_ranks)),
                ),
            )
            for local in range(gang.num_local)
        ),
        folder=where.code,
    )
