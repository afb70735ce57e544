"""Back end of this machine: tasks are processes, attempts rows of the store.

In: what the executor wants of one plan. Out: processes, and files in their folders.
Everything may be wanted again, also after a crash in the middle of it: what was done is
found, and left as it is.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from plimsoll_operator.api.status import CheckpointsStatus
from plimsoll_operator.backends.commands import PROFILE, Where
from plimsoll_operator.backends.executor import Executor
from plimsoll_operator.backends.local.checkpoints import (
    check_room,
    checkpoint_bytes,
    checkpoints_of,
)
from plimsoll_operator.backends.local.observe import LocalObserver, LocalState
from plimsoll_operator.backends.local.state_dir import PlanFolder
from plimsoll_operator.backends.local.task_processes import TaskProcesses
from plimsoll_operator.backends.protocols import AttemptReports, TaskRequest, TaskResult
from plimsoll_operator.backends.revision_effects import RevisionEffects
from plimsoll_operator.rules.actions import RecordPlan
from plimsoll_operator.rules.observed_state import (
    Attempt,
    ObservedTask,
    RecordedRevision,
    TaskKind,
)
from plimsoll_operator.solving.revise_cache import ReviseQuestion
from plimsoll_operator.solving.search_thread import in_thread
from plimsoll_operator.solving.solve_cache import search_once
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.errors import one_line
from plimsoll_planner.pod_names import REVISION
from plimsoll_planner.records.document import digest_of, from_text, load, save
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.revision import Revision
from plimsoll_planner.revising.revise import Stays

STORE = "ranks.store"
"""File by which ranks find each other, in the folder of their task."""


@dataclass(kw_only=True)
class LocalBackend:
    """Launches the tasks of one plan as processes."""

    store: Store
    observer: LocalObserver
    plan: StoredPlan
    folder: PlanFolder
    processes: TaskProcesses
    device_memory_bytes: int = 0
    """Of emulated devices that have less than is planned with; else 0."""
    stopped: set[int] = field(default_factory=set[int])
    """Attempts that were asked to save and leave."""
    offered: tuple[int, str] = (0, "")
    """The attempt that was given a revision last, and the digest of that."""

    def executor(self, state: LocalState) -> Executor:
        """The executor of a decision on the plan."""
        plan, store = self.plan, self.store
        return Executor(
            plan_uid=plan.uid,
            generation=plan.generation,
            created_s=plan.created_s,
            spec=plan.spec,
            state=state,
            store=store,
            solve_cache=self.observer.solve_cache,
            backend=self,
            records=StoreRecords(self.store, plan.uid),
            search=self.search,
            revisions=RevisionEffects(
                plan_uid=plan.uid,
                store=store,
                backend=self,
                cache=self.observer.revise_cache,
                revise=self.revise,
                clock=time.time,
            ),
            clock=time.time,
        )

    @property
    def checkpoints(self) -> Path:
        """The folder in which the job saves."""
        return checkpoints_of(self.plan, self.folder)

    @property
    def saves(self) -> CheckpointsStatus:
        """That folder, as a status names it."""
        return CheckpointsStatus(folder=one_line(str(self.checkpoints)))

    def end_all(self) -> None:
        """End whatever runs for the plan, saved or not."""
        self.processes.end_all()
        TaskProcesses(self.folder.proof.tasks).end_all()

    async def search(self, asked: StoredQuestion) -> None:
        """Search, with the replays that are known."""
        await self.observer.solve_cache.solve(
            asked,
            lambda problem, known, first: in_thread(
                partial(search_once, problem, known, first)
            ),
        )

    async def revise(self, asked: ReviseQuestion, problem: Problem) -> None:
        """Search for a plan in the place of the one that runs."""
        cache = self.observer.revise_cache
        answer: Revision | Stays
        try:
            answer = await cache.answer(asked, problem, in_thread)
        except Exception as error:  # noqa: BLE001 - the plan runs on as it is
            answer = Stays(reason=f"the search came to nothing: {error}")
        cache.answered(self.plan.uid, asked, answer, time.time())

    def where(self, kind: TaskKind, subject: str) -> Where:
        """The place in which a task runs."""
        return self.where_in(self.processes.folder(kind, subject))

    def where_in(self, folder: Path) -> Where:
        """The place in which a task with this folder runs."""
        resumed = self.plan.spec.checkpoint.resume_from
        return Where(
            folder=folder,
            code=self.plan.folder,
            interpreter=(sys.executable,),
            device_memory_bytes=self.device_memory_bytes,
            holds_all_ranks=True,
            meeting=("--store-file", str(folder / STORE)),
            checkpoints=self.checkpoints,
            resume_from=Path(self.plan.folder) / resumed if resumed else None,
        )

    async def start(self, request: TaskRequest) -> None:
        """Start a task, once its folder holds what it reads."""
        task = request.task
        folder = self.processes.folder(task.child_kind, task.subject)
        folder.mkdir(parents=True, exist_ok=True)
        for name, document in request.inputs.items():
            save(folder / f"{name}.json", document)
        await asyncio.to_thread(self.processes.start, task)

    async def stop(self, attempt: int) -> None:
        """Let ranks save and leave, once there is room to save in."""
        if attempt not in self.stopped:  # what it has written since takes room as well
            found = await self.store.profiles.find(
                self.observer.profile_request(self.plan).key
            )
            if found is not None:
                check_room(self.checkpoints, checkpoint_bytes(found.profile))
        self.stopped.add(attempt)
        self.processes.stop(TaskKind.TRAIN, str(attempt))

    async def offer(self, attempt: int, revision: Revision) -> None:
        """Put a revision where ranks look for it, unless it is there."""
        path = self.processes.folder(TaskKind.TRAIN, str(attempt)) / REVISION
        offered = attempt, digest_of(revision)
        if self.offered != offered and path.parent.exists():
            save(path, revision)
            self.offered = offered

    async def clear(self, task: ObservedTask) -> None:
        """End a task and remove its folder."""
        self.processes.clear(task.kind, task.subject)

    async def result(self, task: ObservedTask) -> TaskResult:
        """The result of a task that is done.

        Raises:
            UnreadableError: it has made nothing.
        """
        folder = self.processes.folder(task.kind, task.subject)
        if task.kind is TaskKind.PROFILE:
            return load(folder / PROFILE, ModelProfile)
        # The result is the last line that was printed.
        output, is_replay = folder / "0.out", task.kind is TaskKind.REPLAY
        kind: type[Replay | Rehearsal] = Replay if is_replay else Rehearsal
        lines = output.read_text().splitlines() or [""]
        return from_text(lines[-1], kind, str(output))

    async def reports(self, attempt: int) -> AttemptReports:
        """Reports of the ranks of an attempt, from files."""
        recorded = (await self.store.attempts.of(self.plan.uid))[attempt - 1]
        found = self.observer.reports(self.plan, recorded, self.processes)
        return AttemptReports(
            observations=found.observations, full_device=found.full_device
        )


@dataclass(frozen=True, slots=True)
class StoreRecords:
    """Attempts of one plan as rows of the store."""

    store: Store
    plan_uid: str

    async def plan(self, attempt: Attempt) -> HybridPlan:
        """The plan of record of an attempt."""
        return (await self.store.attempts.of(self.plan_uid))[attempt.number - 1].plan

    async def begin(self, action: RecordPlan, now_s: float) -> None:
        """Write down by which plan an attempt trains."""
        await self.store.attempts.record(
            self.plan_uid,
            action.attempt,
            action.plan,
            problem_digest=action.problem_digest,
            now_s=now_s,
        )

    async def end(
        self,
        ended: Attempt,
        observed: Sequence[Observation],
        revisions: Sequence[RecordedRevision],
    ) -> None:
        """Write down what became of an attempt; the store has what was reported."""
        del observed, revisions
        await self.store.attempts.end(self.plan_uid, ended)
