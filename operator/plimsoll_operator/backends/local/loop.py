"""The loop on one machine: observe, decide, act, wait, until nothing is left to do.

In: a plan of this machine. Out: its last status. Whoever runs it may be killed at any
moment: what was decided is in the store and in the folders of tasks, and the next
one who runs it begins by observing.

    everything is done, or failed     the plan is over
    suspended, and nothing runs       somebody stopped it; the next run goes on
    refused                           the spec asks for what is not there
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.backends.executor import Executor
from plimsoll_operator.backends.local.backend import LocalBackend
from plimsoll_operator.backends.local.observe import LocalState
from plimsoll_operator.backends.local.rank_reports import WorkerGroupReports
from plimsoll_operator.errors import (
    DiskFullError,
    LocalBackendError,
    SlowStartError,
    StoreBusyError,
    StoreError,
    StoreFullError,
)
from plimsoll_operator.rules import actions
from plimsoll_operator.rules.decide import Decision, decide
from plimsoll_operator.rules.observed_state import ObservedState, TaskKind, TaskState
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.errors import DISK_FULL

LOOK_S = 1.0
"""At most, between two looks."""
SEARCHES = (actions.Solve, actions.Revise)
"""Given up where somebody stops the plan."""
BEGINNING = (
    *(actions.StartProfile, actions.StartReplay, actions.StartRehearsal),
    *(*SEARCHES, actions.RecordPlan, actions.StartTraining),
)
"""Left undone for a plan that somebody stops."""
WAITING = (actions.WakeAt, actions.StopTraining, actions.OfferRevision)
"""After which the next look is not made at once: nothing has changed yet."""
TEMPORARY = (DiskFullError, SlowStartError, StoreBusyError, StoreFullError)
"""Errors after which a pass is tried again, until a stop was asked for twice."""
POLL_S = 0.1
"""Between two checks whether a task has ended."""


class Outcome(StrEnum):
    """Why the loop ended."""

    OVER = "over"
    STOPPED = "stopped"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """The state that one pass observed, and its decision."""

    state: LocalState
    decision: Decision
    is_suspended: bool
    """Whether a stop was asked for before the pass, so that it began nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PassResult:
    """Result of one pass, for a watcher."""

    plan: StoredPlan
    status: Status
    state: LocalState
    reports: WorkerGroupReports | None
    """Of the latest attempt."""
    work: Path | None
    """File with the output of the task that prepares the plan."""


class Watcher(Protocol):
    """Display of how a plan goes on."""

    def passed(self, result: PassResult) -> None:
        """Take the result of one pass."""

    def tick(self) -> None:
        """Be called often while nothing happens."""

    def waits(self, reason: str) -> None:
        """Take why something cannot be done now; empty once everything can."""


@dataclass(kw_only=True)
class Loop:
    """Runs one plan."""

    backend: LocalBackend
    watcher: Watcher
    is_stopping: bool = False
    """Somebody at the terminal asked; not written down."""
    is_hurried: bool = False
    """And asked again."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Let the ranks save and leave, then end; asked again, end them at once."""
        if self.is_stopping:
            self.is_hurried = True
            self.backend.end_all()
        self.is_stopping = True
        self.changed.set()

    async def run(self) -> Outcome:
        """Bring the plan on until nothing is left to do.

        Raises:
            StoreError: the store is lost or damaged; what trains saves and leaves.
            OperatorError: processes do not do what they should.
        """
        while True:
            found = await self.pass_or_wait()
            if found is None:
                continue
            if found.decision.status.is_over:
                if not found.state.tasks:
                    return Outcome.OVER
                continue
            if self.is_refused(found.decision.status, found.state):
                return Outcome.REFUSED
            if found.is_suspended and not is_training(found.state):
                await self.leave(found.state)
                return Outcome.STOPPED
            if all(isinstance(action, WAITING) for action in found.decision.actions):
                await self.wait(found)

    async def pass_or_wait(self) -> Pass | None:
        """Make a pass; wait and return None where there is no room, or no turn.

        Running jobs go on meanwhile, also where somebody has asked for a stop: there is
        no room to save in. Who asks again is obeyed at once.
        """
        try:
            found = await self.one_pass()
        except TEMPORARY as error:
            if self.is_hurried and not isinstance(error, SlowStartError):
                raise  # else it is what was ended at once, as asked
            reason = str(error)
        except LocalBackendError:
            if not self.is_stopping:
                raise
            return None  # what was being started was ended at once, as asked
        except StoreError:
            self.stop_ranks()  # nobody could find them again
            raise
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            reason = f"{error.filename or 'the disk'}: {error.strerror}: make room"
        else:
            self.watcher.waits("")
            return found
        self.watcher.waits(reason)
        await asyncio.sleep(LOOK_S)
        return None

    @property
    def plan(self) -> StoredPlan:
        """As it was read last."""
        return self.backend.plan

    @property
    def is_suspended(self) -> bool:
        """Whether somebody wants it to stop."""
        return self.is_stopping or self.plan.is_suspended or self.plan.spec.suspend

    async def one_pass(self) -> Pass:
        """Look, decide, act: one pass, with its state and decision."""
        backend, now_s = self.backend, time.time()
        await self.read_plan()
        is_suspended = self.is_suspended
        observed = await backend.observer.observe(self.plan, backend.processes)
        state = replace(observed, checkpoints=backend.saves)
        decision = decide(
            replace(self.plan.spec, suspend=is_suspended),
            self.plan.status,
            state,
            generation=self.plan.generation,
            now_s=now_s,
        )
        if decision.status != self.plan.status:
            await backend.store.plans.save_status(self.plan.uid, decision.status)
            backend.plan = replace(self.plan, status=decision.status)
        self.watcher.passed(
            PassResult(
                plan=self.plan,
                status=decision.status,
                state=state,
                reports=self.reports(state),
                work=self.work(state),
            )
        )
        executor = backend.executor(state)
        for action in decision.actions:
            if not (self.is_suspended and isinstance(action, BEGINNING)):
                await self.act(executor, action)
        return Pass(state=state, decision=decision, is_suspended=is_suspended)

    async def act(self, executor: Executor, action: actions.Action) -> None:
        """Do one thing; a search is given up where somebody stops the plan."""
        acting = asyncio.create_task(executor.apply(action))
        look_s = time.monotonic() + LOOK_S
        while not acting.done():
            self.watcher.tick()
            await asyncio.wait([acting], timeout=POLL_S)
            if isinstance(action, SEARCHES) and time.monotonic() > look_s:
                look_s = time.monotonic() + LOOK_S
                await self.read_plan()
            if isinstance(action, SEARCHES) and self.is_suspended:
                acting.cancel()
        with suppress(asyncio.CancelledError):
            await acting

    async def read_plan(self) -> None:
        """Read the plan as it is in the store now."""
        found = await self.backend.store.plans.find(self.plan.name)
        if found is not None and found.uid == self.plan.uid:
            self.backend.plan = found

    def reports(self, state: LocalState) -> WorkerGroupReports | None:
        """Reports of the ranks of the latest attempt."""
        if not state.attempts:
            return None
        backend = self.backend
        return backend.observer.reports(
            self.plan, state.attempts[-1], backend.processes
        )

    def work(self, state: LocalState) -> Path | None:
        """File with the output of a task that prepares the plan."""
        for task in state.tasks:
            if task.kind is not TaskKind.TRAIN and task.state is TaskState.RUNNING:
                folder = self.backend.processes.folder(task.kind, task.subject)
                return folder / "0.out"
        return None

    def is_refused(self, status: Status, state: ObservedState) -> bool:
        """Whether only a person can bring the plan on."""
        is_false = status.truth(ConditionType.ACCEPTED) is Truth.FALSE
        return is_false and bool(state.complaint) and not is_training(state)

    def stop_ranks(self) -> None:
        """Let whatever trains save and leave."""
        processes = self.backend.processes
        for task in processes.observe():
            if task.kind is TaskKind.TRAIN:
                processes.stop(task.kind, task.subject)

    async def leave(self, state: LocalState) -> None:
        """End what prepares the plan; it is found in the store or begun again.

        So is what was asked to start and has not begun yet.
        """
        processes = self.backend.processes
        for task in state.tasks:
            if task.kind is not TaskKind.TRAIN and task.state is TaskState.RUNNING:
                await asyncio.to_thread(processes.clear, task.kind, task.subject)
        await asyncio.to_thread(processes.end_all)

    async def wait(self, found: Pass) -> None:
        """Wait until a task ends, somebody asks for something, or it is time."""
        decided = found.decision.actions
        wakes = [one.at_s for one in decided if isinstance(one, actions.WakeAt)]
        wait_s = min([LOOK_S, *(at_s - time.time() for at_s in wakes)])
        until_s = time.monotonic() + wait_s  # which nobody sets back
        while time.monotonic() < until_s and not self.changed.is_set():
            if self.backend.processes.has_changed(found.state.tasks):
                return
            self.watcher.tick()
            await asyncio.sleep(POLL_S)
        self.changed.clear()


def is_training(state: ObservedState) -> bool:
    """Whether a worker group runs, or its end is not written down yet."""
    latest = state.attempts[-1] if state.attempts else None
    if latest is None or latest.ending is not None:
        return False
    return state.task(TaskKind.TRAIN, str(latest.number)) is not None
