"""Shows a proof by running it: one device fewer, and every mesh dies of memory.

In: what acts for a plan whose answer stands. Out: how the least-memory plan of each
mesh with one device fewer ended, under the memory of the devices that were offered.
Nothing of it is left running, however it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll_operator.api.spec import Checkpoint
from plimsoll_operator.backends.commands import PLAN, train_task
from plimsoll_operator.backends.local.backend import LocalBackend
from plimsoll_operator.backends.local.task_processes import TaskProcesses
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_operator.solving.search_thread import in_thread
from plimsoll_planner.records.document import save
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution, Termination
from plimsoll_planner.records.task import Task

STEPS = 2
"""Enough for every peak: the second step has the optimizer's state from the start."""
POLL_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofRun:
    """Outcome of one mesh."""

    plan: HybridPlan
    message: str
    holds: bool
    """It is as the certificate says."""


def nothing_to_run(problem: Problem, answer: Solution) -> str:
    """Why one device fewer proves nothing here; empty where it does."""
    if answer.termination is not Termination.OPTIMAL:
        return f"the plan is {answer.termination}, and claims no smallest count"
    if problem.objective.goal is not Goal.MINIMIZE_GPUS:
        return f"{problem.objective.goal} claims no smallest count"
    if problem.override.least_gpus >= answer.plan.num_gpus:
        return "what is fixed needs as many devices"
    if len(problem.offers) > 1:
        return "with several offers fewer devices of one may fit on another"
    if answer.plan.num_gpus == 1:
        return "there is no smaller count than 1"
    return ""


async def prove(
    backend: LocalBackend, problem: Problem, answer: Solution
) -> AsyncGenerator[ProofRun]:
    """Run every mesh with one device fewer than the answer to a problem has."""
    # Imported here, for whoever only looks needs no numpy.
    from plimsoll_planner.search.least_memory_plans import least_memory_plans  # noqa: PLC0415

    fewer = answer.plan.num_gpus - 1
    offer_bytes = problem.offers[0].device_memory_bytes
    usable_bytes = problem.limits.usable_bytes(offer_bytes)
    folder = backend.folder.proof
    folder.make()
    processes = TaskProcesses(folder.tasks, backend.plan.name)
    processes.end_all()  # of a proof that was killed
    plans = await in_thread(lambda: list(least_memory_plans(problem, fewer)))
    try:
        for number, plan in enumerate(plans, start=1):
            if (plan.peak_bytes or 0) <= usable_bytes:
                yield fitting(plan, answer)
                continue
            place = processes.folder(TaskKind.TRAIN, str(number))
            task = two_steps(backend, number, plan, place, usable_bytes)
            ended = await run_to_the_end(processes, task, plan)
            text = ended.message or str(ended.ending)
            holds = ended.ending is Ending.OUT_OF_MEMORY
            yield ProofRun(plan=plan, message=text, holds=holds)
    finally:
        processes.end_all()


def fitting(plan: HybridPlan, answer: Solution) -> ProofRun:
    """The outcome of a mesh that need not be run, because it fits."""
    fewest = answer.certificate.fewest_at_any_speed
    if fewest is not None and fewest <= plan.num_gpus:
        text = "fits, but is slower than what was asked for"
        return ProofRun(plan=plan, message=text, holds=True)
    text = "fits, against what the certificate says"
    return ProofRun(plan=plan, message=text, holds=False)


def two_steps(
    backend: LocalBackend,
    number: int,
    plan: HybridPlan,
    folder: Path,
    usable_bytes: int,
) -> Task:
    """The worker group of a plan, on devices that have what the proof says."""
    spec = backend.plan.spec
    where = replace(
        backend.where_in(folder),
        checkpoints=folder / "checkpoints",
        resume_from=None,
        device_memory_bytes=usable_bytes,
    )
    brief = replace(spec, training=replace(spec.training, steps=STEPS))
    return train_task(number, plan, replace(brief, checkpoint=Checkpoint()), where)


async def run_to_the_end(
    processes: TaskProcesses, task: Task, plan: HybridPlan
) -> ObservedTask:
    """Run the worker group of a plan and return how it ended."""
    processes.clear(task.child_kind, task.subject)
    folder = processes.folder(task.child_kind, task.subject)
    folder.mkdir(parents=True)
    save(folder / PLAN, plan)
    processes.start(task)  # not beside the loop: a start that is left would be orphaned
    while True:
        [found] = (one for one in processes.observe() if one.subject == task.subject)
        if found.state is TaskState.ENDED:
            processes.clear(task.child_kind, task.subject)
            return found
        await asyncio.sleep(POLL_S)
