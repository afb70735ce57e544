"""Does what a decision asks for: processes are started, and things are written down.

In: an action for one plan. Out: its effect. Each may be asked for again, also after a
crash in the middle of it: what was done already is found and left as it is.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from plimsoll_operator.brain.actions import (
    Action,
    Clear,
    RecordEnding,
    RecordPlan,
    Solve,
    StartProfile,
    StartReplay,
    StartTraining,
    StopTraining,
    StoreProfile,
    StoreReplay,
    WakeAt,
)
from plimsoll_operator.brain.question import limits_of
from plimsoll_operator.brain.seen import ChildKind, Ending
from plimsoll_operator.errors import HomeError
from plimsoll_operator.home.checkpoints import check_room, checkpoint_bytes
from plimsoll_operator.home.children import Children
from plimsoll_operator.home.commands import (
    PLAN,
    PROFILE,
    profile_task,
    replay_task,
    train_task,
)
from plimsoll_operator.home.eyes import Eyes
from plimsoll_operator.home.folders import PlanFolder
from plimsoll_operator.home.reports import GangReports
from plimsoll_operator.home.search_thread import in_thread
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.observed_overhead import Shortage, unreported_shortage
from plimsoll_planner.records.document import digest_of, from_text, load, save
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import HybridPlan, PhasePeak
from plimsoll_planner.records.problem import Limits
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.solution import Solution


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
                await self.store.replays.save(replay_in(folder / "0.out"))
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
        task = profile_task(wish, self.plan.spec, folder, self.plan.folder)
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
        # Imported here, for whoever only looks needs no numpy.
        from plimsoll_planner.search.replayed import solve_with_replay  # noqa: PLC0415

        asked = await self._asked()
        known: dict[str, Replay] = {}
        search = partial(
            solve_with_replay, asked.problem, lambda plan: known.get(digest_of(plan))
        )
        while True:
            try:
                found = await in_thread(search)
            except InvalidInputError as error:
                self.eyes.refused[asked.digest] = str(error)
                return
            waits_for = ""
            if found.waits and isinstance(found.answer, Solution):
                waits_for = digest_of(found.answer.plan)
            replay = await self.store.replays.find(waits_for) if waits_for else None
            if replay is None:
                break
            known[waits_for] = replay
        answer = StoredAnswer(
            answer=found.answer,
            unreplayed=waits_for,
            is_certified=found.is_certified,
            num_rounds=len(found.rounds),
        )
        await self.store.answers.save(asked.digest, answer)

    async def _start_replay(self, digest: str) -> None:
        """Start to replay the plan that the search waits for."""
        asked = await self._asked()
        found = await self.store.answers.find(asked.digest)
        if found is None or not isinstance(found.answer, Solution):
            return  # the question has changed since the decision
        folder = self.children.folder(ChildKind.REPLAY, digest)
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / PLAN, found.answer.plan)
        save(folder / PROFILE, asked.problem.profile)
        task = replay_task(digest, self.plan.spec, folder, self.plan.folder)
        await asyncio.to_thread(self.children.start, task)

    async def _start_training(self, number: int) -> None:
        """Start a gang by its plan of record."""
        attempts = await self.store.attempts.of(self.plan.uid)
        plan = attempts[number - 1].plan
        folder = self.children.folder(ChildKind.TRAIN, str(number))
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / PLAN, plan)
        task = train_task(
            number,
            plan,
            self.plan.spec,
            folder,
            self.plan.folder,
            checkpoints=self.checkpoints,
            device_memory_bytes=self.device_memory_bytes,
        )
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
        for observation in reports.observations:
            if observation.peaks:
                peak = peak_of(attempt.plan, observation.rank)
                await self.store.observations.save(self.plan.uid, observation, peak)
        keys = {one.overhead_key for one in reports.observations}
        if action.ending is Ending.OUT_OF_MEMORY:
            shortage = shortage_of(attempt.plan, limits_of(self.plan.spec), reports)
            if shortage.is_surprise:
                await self.store.shortages.save(self.plan.uid, action.attempt, shortage)
                keys.add(shortage.key)
        for key in keys:
            await self.store.calibrations.refresh(key)
        full = reports.full_device
        await self.store.attempts.end(
            self.plan.uid,
            action.attempt,
            ending=action.ending,
            ended_s=await self._later(),
            generation=self.plan.generation,
            message=action.child.message,
            rank=None if full is None else full.rank,
            phase=None if full is None else full.phase,
        )


def replay_in(path: Path) -> Replay:
    """Return the replay that a process printed last.

    Raises:
        UnreadableError: it printed none.
    """
    lines = path.read_text().splitlines() or [""]
    return from_text(lines[-1], Replay, str(path))


def peak_of(plan: HybridPlan, rank: int) -> PhasePeak:
    """Return the largest predicted peak of a rank."""
    peak = plan.stage_of(rank).peak()
    assert peak is not None  # noqa: S101 - a plan of record is one that was predicted
    return peak


def shortage_of(plan: HybridPlan, limits: Limits, reports: GangReports) -> Shortage:
    """Return what is learned from a rank that ran out of device memory."""
    full = reports.full_device
    if full is None:
        return unreported_shortage(plan, limits)
    told = (one for one in reports.observations if one.rank == full.rank and one.peaks)
    observation = next(told, None)
    if observation is None:
        return unreported_shortage(plan, limits, full.rank)
    offer = plan.offers[plan.stage_of(full.rank).offer]
    peak = peak_of(plan, full.rank)
    return Shortage(
        key=observation.overhead_key,
        micro_batch=plan.micro_batch,
        num_communicators=observation.num_communicators,
        capacity_bytes=limits.usable_bytes(offer.device_memory_bytes),
        in_use_bytes=max(one.allocated_bytes for one in observation.peaks),
        asked_bytes=full.asked_bytes,
        predicted_allocated_bytes=peak.allocated.upper_bytes,
        predicted_device_bytes=peak.device.upper_bytes,
    )
