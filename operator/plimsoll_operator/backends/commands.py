"""The command lines of what the loop starts: profiling, replay, rehearsal, training.

In: a request, and where its files will be. Out: a `Task`. The modules are named, never
imported: they run with torch, in processes of their own, on this machine or in a pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.rules.profile_request import ProfileRequest
from plimsoll_planner.pod_names import REVISION, report_name
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.task import Command, Task, TaskKind, Variable

PROFILER, TRAINER = "plimsoll_profiler", "plimsoll_trainer"
PLAN, PROFILE = "plan.json", "profile.json"
KIB = 2**10


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """Place in which a task runs, and its files there."""

    folder: Path
    """Of the task: its inputs, results and reports."""
    code: str = ""
    """Folder that the workload's module is found from; empty: where a pod begins."""
    interpreter: tuple[str, ...] = ()
    """Opens every command; empty: a pod knows its own."""
    device_memory_bytes: int = 0
    """Of emulated devices that have less than planned; else 0."""
    holds_all_ranks: bool = False
    """All ranks run there; else those of one pod."""
    meeting: tuple[str, ...] = ()
    """The trainer's option by which ranks find each other, and its value."""
    checkpoints: Path | None = None
    """Folder in which the job saves, and from which it goes on; None: none."""
    resume_from: Path | None = None
    """Checkpoints of another plan, to begin with."""


def report_of(folder: Path, rank: int) -> Path:
    """The file of a rank's reports."""
    return folder / report_name(rank)


def profile_task(request: ProfileRequest, spec: TrainingPlanSpec, where: Where) -> Task:
    """The task of profiling a workload into `PROFILE`."""
    graphs = ",".join(map(str, request.graph_micro_batches))
    words = (
        "profile",
        *("--entrypoint", request.entrypoint, "--args", request.arguments),
        *("--device", request.device_kind, "--source", request.source),
        *("--tensor-degrees", ",".join(map(str, request.tensor_degrees))),
        *(("--graph-micro-batches", graphs) if graphs else ()),
        *("--request-key", request.key, "--out", str(where.folder / PROFILE)),
    )
    return profiler_task(TaskKind.PROFILE, request.key, words, spec, where)


def replay_task(digest: str, spec: TrainingPlanSpec, where: Where) -> Task:
    """The task of replaying the plan in `PLAN`."""
    words = ("replay", *plan_words(spec, where))
    return profiler_task(TaskKind.REPLAY, digest, words, spec, where)


def rehearsal_task(digest: str, spec: TrainingPlanSpec, where: Where) -> Task:
    """The task of rehearsing the fullest rank of the plan in `PLAN`."""
    memory_bytes = where.device_memory_bytes
    less = ("--device-memory", str(memory_bytes)) if memory_bytes else ()
    words = ("rehearse", *plan_words(spec, where), *less)
    return profiler_task(TaskKind.REHEARSAL, digest, words, spec, where)


def plan_words(spec: TrainingPlanSpec, where: Where) -> tuple[str, ...]:
    """Options that name the plan in `PLAN`, and the profile that it was made from."""
    return (
        *("--entrypoint", spec.workload.entrypoint),
        *("--plan", str(where.folder / PLAN)),
        *("--profile", str(where.folder / PROFILE)),
    )


def profiler_task(
    kind: TaskKind,
    subject: str,
    words: tuple[str, ...],
    spec: TrainingPlanSpec,
    where: Where,
) -> Task:
    """The task of one process of the profiler, from its verb on."""
    return Task(
        child_kind=kind,
        subject=subject,
        commands=(Command(words=(*where.interpreter, "-m", PROFILER, *words)),),
        folder=where.code,
        timeout_s=float(spec.profile.timeout_seconds),
    )


def report_every_s(num_ranks: int) -> float:
    """Seconds between two reports of a rank without news.

    Revisions come in answer to reports; of many ranks together there are no more than
    eight in a second.
    """
    return min(max(num_ranks / 8, 10.0), 60.0)


def train_task(
    attempt: int, plan: HybridPlan, spec: TrainingPlanSpec, where: Where
) -> Task:
    """The ranks that train by the plan in `PLAN`: all of them, or those of one pod."""
    given: dict[str, object] = {
        "--plan": where.folder / PLAN,
        "--entrypoint": spec.workload.entrypoint,
        "--steps": spec.training.steps,
        # Whoever has a place waits as long as others may look for theirs.
        "--meet-timeout-s": spec.run_policy.pending_seconds,
        "--attempt": attempt,
        "--report-file": where.folder / report_name("{rank}"),
        "--report-every-s": report_every_s(plan.num_gpus),
        # Also where nobody revises: that may change while the ranks run.
        "--revision-file": where.folder / REVISION,
    }
    if not spec.run_policy.replan_online:
        given["--revision-wait-s"] = 0
    if where.checkpoints is not None:
        given["--checkpoint-dir"] = where.checkpoints
        given["--checkpoint-every"] = spec.checkpoint.every_steps
    if where.resume_from is not None:
        given["--resume-from"] = where.resume_from
    if where.device_memory_bytes:
        given["--device-memory"] = f"{where.device_memory_bytes // KIB}KiB"
    words = tuple(str(word) for pair in given.items() for word in pair)
    if where.checkpoints is not None and spec.checkpoint.export_weights:
        words = (*words, "--export-weights")
    num_local = plan.num_gpus if where.holds_all_ranks else plan.pods.gpus_per_pod
    return Task(
        child_kind=TaskKind.TRAIN,
        subject=str(attempt),
        commands=tuple(
            Command(
                words=(*where.interpreter, "-m", TRAINER, *words, *where.meeting),
                variables=(
                    Variable(name="RANK", value=str(local)),
                    Variable(name="LOCAL_RANK", value=str(local)),
                    Variable(name="WORLD_SIZE", value=str(plan.num_gpus)),
                ),
            )
            for local in range(num_local)
        ),
        folder=where.code,
    )
