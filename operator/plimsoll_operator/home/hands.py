"""Does what a decision asks for: processes are started, and things are written down.

In: an action for one plan. Out: its effect. Each may be asked for again, also after a
crash in the middle of it: what was done already is found and left as it is.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from plimsoll_operator.asking import search_once
from plimsoll_operator.brain.actions import (
    Action,
    Clear,
    RecordEnding,
    RecordPlan,
    Solve,
    StartProfile,
    StartRehearsal,
    StartReplay,
    StartTraining,
    StopTraining,
    StoreProfile,
    StoreRehearsal,
    StoreReplay,
    WakeAt,
)
from plimsoll_operator.brain.question import limits_of
from plimsoll_operator.brain.seen import ChildKind
from plimsoll_operator.commands import (
    PLAN,
    PROFILE,
    Gang,
    Where,
    profile_task,
    rehearsal_task,
    replay_task,
    train_task,
)
from plimsoll_operator.errors import HomeError
from plimsoll_operator.home.checkpoints import check_room, checkpoint_bytes
from plimsoll_operator.home.children import Children
from plimsoll_operator.home.eyes import Eyes
from plimsoll_operator.home.folders import PlanFolder
from plimsoll_operator.home.search_thread import in_thread
from plimsoll_operator.learning import Lesson, learn, learn_rehearsal, peak_of
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import Document, from_text, load, save
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.replay import Replay

STORE = "ranks.store"
"""File by which the ranks of a gang find each other, in the folder of the child."""


@dataclass(kw_only=True)
class Hands:
    """Acts for one plan."""

    store: Store
    eyes: Eyes
    plan: StoredPlan
    folder: PlanFolder
    children: Children
    device_memory_bytes: int = 0
    """Of emulated devices that have less than is planned with; else 0."""
    stopped: set[int] = field(default_factory=set[int])
    """Attempts that were asked to save and leave."""

    @property
    def checkpoints(self) -> Path:
        """Where the job saves."""
        path = self.plan.spec.checkpoint.path
        if not path:
            return self.folder.checkpoints
        return Path(self.plan.folder) / path / self.plan.uid

    @property
    def resume_from(self) -> Path | None:
        """Checkpoints of another plan that the job begins with."""
        path = self.plan.spec.checkpoint.resume_from
        return Path(self.plan.folder) / path if path else None

    def where(self, folder: Path) -> Where:
        """Return where a child with this folder runs."""
        code = self.plan.folder
        return Where(folder=folder, code=code, interpreter=(sys.executable,))

    def end_all(self) -> None:
        """End whatever runs for the plan, saved or not."""
        self.children.end_all()
        Children(self.folder.proof.children).end_all()

    async def act(self, action: Action) -> None:
        """Do one thing.

        Raises:
            OperatorError: it could not be done; asked again, it may work.
        """
        match action:
            case StartProfile():
                await self._start_profile()
            case StartReplay(digest=digest):
                await self._start_replay(digest)
            case StartRehearsal(digest=digest):
                await self._start_rehearsal(digest)
            case StartTraining(attempt=number):
                await self._start_training(number)
            case StopTraining(attempt=number):
                await self._stop_training(number)
            case Clear(child=child):
                self.children.clear(child.kind, child.subject)
            case _:
                await self._write(action)

    async def _write(self, action: Action) -> None:
        """Write something down."""
        match action:
            case StoreProfile(child=child):
                path = self.children.folder(child.kind, child.subject) / PROFILE
                made_s = await self._later()
                await self.store.profiles.save(load(path, ModelProfile), made_s)
            case StoreReplay(child=child):
                folder = self.children.folder(child.kind, child.subject)
                await self.store.replays.save(printed(folder, Replay))
            case StoreRehearsal(child=child):
                folder = self.children.folder(child.kind, child.subject)
                found = printed(folder, Rehearsal)
                await learn_rehearsal(self.store, self.plan.uid, found, time.time())
            case Solve():
                await self._solve()
            case RecordPlan(attempt=number, plan=plan):
                await self.store.attempts.record(
                    self.plan.uid,
                    number,
                    plan,
                    problem_digest=action.problem_digest,
                    now_s=time.time(),
                )
            case RecordEnding():
                await self._record_ending(action)
            case _:
                assert isinstance(action, WakeAt)  # noqa: S101 - the loop waits

    async def _start_profile(self) -> None:
        """Start to profile."""
        wish = self.eyes.wish(self.plan)
        folder = self.children.folder(ChildKind.PROFILE, wish.key)
        task = profile_task(wish, self.plan.spec, self.where(folder))
        await asyncio.to_thread(self.children.start, task)

    async def _later(self) -> float:
        """Return the time: later than all that happened, also by a clock set back."""
        attempts = await self.store.attempts.of(self.plan.uid)
        before_s = (
            self.plan.created_s,
            *(one.ended_s for one in attempts),
            *(one.since_s for one in self.children.look()),
        )
        return max(time.time(), math.nextafter(max(before_s), math.inf))

    async def _asked(self) -> StoredQuestion:
        """Return the question as it was put."""
        profile = await self.store.profiles.find(self.eyes.wish(self.plan).key)
        if profile is None:
            raise HomeError("the profile was deleted meanwhile: start again")
        attempts = await self.store.attempts.of(self.plan.uid)
        return await self.eyes.question(self.plan, attempts, profile)

    async def _solve(self) -> None:
        """Search, with the replays that are known."""
        asking = self.eyes.asking
        await asking.solve(
            await self._asked(),
            lambda problem, known: in_thread(partial(search_once, problem, known)),
        )

    async def _start_replay(self, digest: str) -> None:
        """Start to replay the plan that the search waits for."""
        asked = await self._asked()
        plan = await self.eyes.asking.unreplayed_plan(asked)
        if plan is None:
            return  # the question has changed since the decision
        folder = self._folder_with(ChildKind.REPLAY, digest, plan, asked)
        task = replay_task(digest, self.plan.spec, self.where(folder))
        await asyncio.to_thread(self.children.start, task)

    async def _start_rehearsal(self, digest: str) -> None:
        """Start to rehearse the plan that answers the question."""
        asked = await self._asked()
        wanted = await self.eyes.asking.rehearsed_plan(asked, digest)
        if wanted is None:
            return  # the question has changed since the decision
        await self.store.rehearsals.ask(self.plan.uid, wanted)
        folder = self._folder_with(ChildKind.REHEARSAL, digest, wanted.plan, asked)
        where, spec = self.where(folder), self.plan.spec
        task = rehearsal_task(digest, spec, where, self.device_memory_bytes)
        await asyncio.to_thread(self.children.start, task)

    def _folder_with(
        self, kind: ChildKind, digest: str, plan: HybridPlan, asked: StoredQuestion
    ) -> Path:
        """Folder of a child, with a plan and the profile that it was made from."""
        folder = self.children.folder(kind, digest)
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / PLAN, plan)
        save(folder / PROFILE, asked.problem.profile)
        return folder

    async def _start_training(self, number: int) -> None:
        """Start a gang by its plan of record."""
        attempts = await self.store.attempts.of(self.plan.uid)
        plan = attempts[number - 1].plan
        folder = self.children.folder(ChildKind.TRAIN, str(number))
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / PLAN, plan)
        gang = Gang(
            attempt=number,
            num_ranks=plan.num_gpus,
            num_local=plan.num_gpus,
            meeting=("--store-file", str(folder / STORE)),
            checkpoints=self.checkpoints,
            resume_from=self.resume_from,
            device_memory_bytes=self.device_memory_bytes,
        )
        task = train_task(gang, self.plan.spec, self.where(folder))
        await asyncio.to_thread(self.children.start, task)

    async def _stop_training(self, number: int) -> None:
        """Let a gang save and leave, once there is room to save in."""
        if number not in self.stopped:  # what it has written since takes room as well
            found = await self.store.profiles.find(self.eyes.wish(self.plan).key)
            if found is not None:
                check_room(self.checkpoints, checkpoint_bytes(found.profile))
        self.stopped.add(number)
        self.children.stop(ChildKind.TRAIN, str(number))

    async def _record_ending(self, action: RecordEnding) -> None:
        """Write down what the ranks observed, then how the attempt ended."""
        attempt = (await self.store.attempts.of(self.plan.uid))[action.attempt - 1]
        reports = self.eyes.reports(self.plan, attempt, self.children)
        now_s = await self._later()
        for observation in reports.observations:
            if observation.peaks:
                peak = peak_of(attempt.plan, observation.rank)
                await self.store.observations.save(
                    self.plan.uid, observation, peak, attempt.plan.micro_batch, now_s
                )
        lesson = Lesson(
            plan_uid=self.plan.uid,
            attempt=action.attempt,
            plan=attempt.plan,
            limits=limits_of(self.plan.spec),
            observations=reports.observations,
            full_device=reports.full_device,
            ending=action.ending,
        )
        await learn(self.store, lesson)
        full = reports.full_device
        await self.store.attempts.end(
            self.plan.uid,
            action.attempt,
            ending=action.ending,
            ended_s=now_s,
            generation=self.plan.generation,
            message=action.child.message,
            rank=None if full is None else full.rank,
            phase=None if full is None else full.phase,
        )


D = TypeVar("D", bound=Document)


def printed(folder: Path, kind: type[D]) -> D:
    """The document that the process of a child printed last.

    Raises:
        UnreadableError: it printed none.
    """
    path = folder / "0.out"
    lines = path.read_text().splitlines() or [""]
    return from_text(lines[-1], kind, str(path))
