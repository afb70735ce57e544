"""Carries out a decision: which steps an action takes, and in which order.

In: an action, and the state that it was decided on. Out: its effect, through a back end
and the store. Each may be asked for again, also after a crash in the middle of it. Made
anew for each pass over a plan, by `backends.local.backend` and `control.reconcile`.

    a question that has changed since the decision   its action does nothing
    a rehearsal                                      is asked for in the store first
    the end of an attempt                            is learned from, then written down
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.backends.commands import (
    profile_task,
    rehearsal_task,
    replay_task,
    train_task,
)
from plimsoll_operator.backends.planning_state import PlanningState
from plimsoll_operator.backends.protocols import AttemptRecords, Backend, TaskRequest
from plimsoll_operator.backends.revision_effects import RevisionEffects
from plimsoll_operator.errors import TooLargeError
from plimsoll_operator.rules import actions
from plimsoll_operator.rules.observed_state import Attempt, ObservedTask, TaskKind
from plimsoll_operator.rules.revising import followed_plan
from plimsoll_operator.solving.solve_cache import SolveCache
from plimsoll_operator.store.learning import Lesson, learn, learn_rehearsal, peak_of
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import Document, digest_of
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.replay import Replay


@dataclass(frozen=True, kw_only=True, slots=True)
class Executor:
    """Carries out what was decided on one state of one plan."""

    plan_uid: str
    generation: int
    """Of the spec."""
    created_s: float
    """Of the plan; seconds since 1970."""
    spec: TrainingPlanSpec
    state: PlanningState
    store: Store
    solve_cache: SolveCache
    backend: Backend
    records: AttemptRecords
    search: Callable[[StoredQuestion], Awaitable[None]]
    """Answers a question, or begins to."""
    revisions: RevisionEffects
    clock: Callable[[], float]
    """Seconds since 1970."""

    async def apply(self, action: actions.Action) -> None:
        """Do one thing; a plan that is too large for the back end is refused.

        Raises:
            OperatorError: it could not be done; asked again, it may work.
        """
        try:
            await self._apply(action)
        except TooLargeError as error:
            if self.state.answer is None:
                raise
            self.solve_cache.refused[self.state.answer.problem_digest] = str(error)

    async def _apply(self, action: actions.Action) -> None:  # noqa: C901 - a case each
        """Do one thing."""
        match action:
            case actions.StartProfile():
                await self._start_profile()
            case actions.StartReplay(digest=digest):
                await self._start_replay(digest)
            case actions.StartRehearsal(digest=digest):
                await self._start_rehearsal(digest)
            case actions.StartTraining(attempt=number, memory_factor=factor):
                await self._start_training(number, factor)
            case actions.StopTraining(attempt=number):
                await self.backend.stop(number)
            case actions.Clear(task=task):
                await self.backend.clear(task)
            case actions.StoreResult(task=task):
                await self._store_result(task)
            case actions.Solve():
                await self.search(self._asked)
            case actions.RecordPlan():
                await self.records.begin(action, self.clock())
            case actions.RecordEnding():
                await self._record_ending(action)
            case actions.RevisionAction():
                await self.revisions.apply(action, self.state)
            case actions.WakeAt():
                pass  # whoever runs the loop waits

    @property
    def _asked(self) -> StoredQuestion:
        """The question that was decided to be answered."""
        asked = self.state.asked
        assert asked is not None  # noqa: S101 - nothing is searched for without one
        return asked

    async def _start_profile(self) -> None:
        """Start to profile: on a device where one is measured, else without."""
        wanted = self.state.profile_request
        assert wanted is not None  # noqa: S101 - nothing is prepared without one
        where = self.backend.where(TaskKind.PROFILE, wanted.key)
        measures = wanted.source is Source.MEASURED
        request = TaskRequest(
            task=profile_task(wanted, self.spec, where),
            devices=self.state.offers[0] if measures else None,
            after_s=self._later_than_all(),
        )
        await self.backend.start(request)

    async def _start_replay(self, digest: str) -> None:
        """Start to replay the plan that the search waits for; no device is needed."""
        plan = await self.solve_cache.unreplayed_plan(self._asked)
        if plan is None:
            return  # the question has changed since the decision
        where = self.backend.where(TaskKind.REPLAY, digest)
        request = TaskRequest(
            task=replay_task(digest, self.spec, where),
            inputs=self._with_profile(plan),
            after_s=self._later_than_all(),
        )
        await self.backend.start(request)

    async def _start_rehearsal(self, digest: str) -> None:
        """Start to rehearse the plan that answers the question, on one device."""
        wanted = await self.solve_cache.rehearsed_plan(self._asked, digest)
        if wanted is None:
            return  # the question has changed since the decision
        await self.store.rehearsals.ask(self.plan_uid, wanted)
        plan = wanted.plan
        where = self.backend.where(TaskKind.REHEARSAL, digest)
        request = TaskRequest(
            task=rehearsal_task(digest, self.spec, where),
            devices=plan.offers[plan.stage_of(plan.fullest_rank).offer],
            inputs=self._with_profile(plan),
            after_s=self._later_than_all(),
        )
        await self.backend.start(request)

    async def _start_training(self, number: int, memory_factor: int) -> None:
        """Start the ranks of an attempt by its plan of record."""
        plan = await self.records.plan(self._attempt(number))
        where = self.backend.where(TaskKind.TRAIN, str(number))
        request = TaskRequest(
            task=train_task(number, plan, self.spec, where),
            devices=plan,
            inputs={"plan": plan},
            memory_factor=memory_factor,
            after_s=self._later_than_all(),
        )
        await self.backend.start(request)

    def _with_profile(self, plan: HybridPlan) -> dict[str, Document]:
        """A plan and the profile that it was made from, as inputs."""
        return {"plan": plan, "profile": self._asked.problem.profile}

    def _attempt(self, number: int) -> Attempt:
        """An attempt that was seen."""
        return next(one for one in self.state.attempts if one.number == number)

    def _later_than_all(self, now_s: float = 0.0) -> float:
        """The time, later than all that is known to have happened; since 1970.

        Clocks of machines differ or are set back, and what follows from what is known
        by its order.
        """
        before_s = max(
            self.created_s,
            *(one.ended_s for one in self.state.attempts),
            *(one.since_s for one in self.state.tasks),
            0.0,
        )
        return max(now_s, math.nextafter(before_s, math.inf))

    async def _store_result(self, task: ObservedTask) -> None:
        """Keep the result of a task.

        One that the task has stored itself is seen; where it is not, it is lost, and
        made again.
        """
        found = await self.backend.result(task)
        if found is None:
            await self.backend.clear(task)
        elif isinstance(found, ModelProfile):
            made_s = self._later_than_all(self.clock())
            await self.store.profiles.save(found, made_s)
        elif isinstance(found, Replay):
            await self.store.replays.save(found)
        else:
            await learn_rehearsal(self.store, self.plan_uid, found, self.clock())

    async def _record_ending(self, action: actions.RecordEnding) -> None:
        """Keep what the ranks observed, learn from it, then write down the end."""
        uid, attempt = self.plan_uid, self._attempt(action.attempt)
        of_record = await self.records.plan(attempt)
        revisions = await self.store.revisions.of(uid, attempt.number)
        plans = [of_record, *(one.revision.plan for one in revisions)]
        by_digest = {digest_of(each): each for each in plans}
        plan = followed_plan(of_record, revisions)
        reports = await self.backend.reports(attempt.number)
        full, ended_s = reports.full_device, self._later_than_all(self.clock())
        for one in reports.observations:
            if one.peaks and one.plan_digest in by_digest:
                peak = peak_of(by_digest[one.plan_digest], one.rank)
                micro_batch = plan.micro_batch
                await self.store.observations.save(uid, one, peak, micro_batch, ended_s)
        if full is not None:  # of the plan that it ran by, settled or not
            its = next((r for r in reports.observations if r.rank == full.rank), None)
            plan = plan if its is None else by_digest.get(its.plan_digest, plan)
        observed = await self.store.observations.of(uid, attempt.number)
        lesson = Lesson(
            plan_uid=uid,
            attempt=attempt.number,
            plan=plan,
            limits=await self.revisions.cache.limits(uid, attempt, plan),
            observations=observed,
            full_device=full,
            ending=action.ending,
        )
        await learn(self.store, lesson)
        ended = replace(
            attempt,
            ending=action.ending,
            ended_s=ended_s,
            generation=self.generation,
            message=action.task.message,
            rank=None if full is None else full.rank,
            phase=None if full is None else full.phase,
        )
        await self.records.end(ended, observed, revisions)
        self.revisions.cache.forget(uid)
