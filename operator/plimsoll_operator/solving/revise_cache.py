"""The plan of an open attempt as its ranks report it, and whether to revise it.

In: an attempt and its latest reports. Out: a `RunningPlan`; an answer of `revise`, kept
for as long as it counts. Called where plans are observed, and by the executor. What is
kept here is lost with the process: the search is then asked once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from plimsoll_operator.rules.observed_state import (
    Attempt,
    RecordedRevision,
    RevisionState,
    RunningPlan,
)
from plimsoll_operator.rules.revising import followed_plan
from plimsoll_operator.solving.solve_cache import replayed_problem
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.observation import DEVIATION, Observation
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.revision import Revision
from plimsoll_planner.revising.observed import ObservedStages, observed_stages
from plimsoll_planner.revising.revise import Stays, revise

T = TypeVar("T")


class Run(Protocol):
    """Computes in another thread or process."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Give the result of the work."""
        ...


LEAST_PAUSE_S = 5.0
"""Between two searches."""
LONGEST_S = 900.0
"""For a search, after which it is asked for again: whoever searched is gone."""
PAUSES = 20
"""Times a search, until the next one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviseQuestion:
    """A plan that runs, and its stages."""

    attempt: int
    problem_digest: str
    """Of what the plan answers."""
    plan: HybridPlan
    stages: ObservedStages
    steps_left: int

    def is_like(self, other: ReviseQuestion) -> bool:
        """Whether another question is the same, but for noise in seconds."""
        mine, theirs = self.stages, other.stages
        return (
            self.attempt == other.attempt
            and digest_of(self.plan) == digest_of(other.plan)
            and (mine.cause, mine.lacking_bytes) == (theirs.cause, theirs.lacking_bytes)
            and all(
                abs(a - b) <= DEVIATION * b
                for a, b in zip(mine.passes_s, theirs.passes_s, strict=True)
            )
        )

    def answer(self, problem: Problem) -> Revision | Stays:
        """A revision that is worth it, or why the plan stays."""
        return revise(problem, self.plan, self.stages, self.steps_left)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A question that was asked, and its answer once that is there."""

    asked: ReviseQuestion
    asked_s: float
    """Seconds since 1970."""
    answered_s: float = 0.0
    answer: Revision | Stays | None = None
    stays: str = ""
    """Why the plan stays, by the latest search that has ended; empty: it does not."""

    def is_of(self, attempt: int, plan: HybridPlan) -> bool:
        """Whether the question was about a plan that an attempt runs by."""
        return self.asked.attempt == attempt and self.asked.plan == plan

    @property
    def again_s(self) -> float:
        """Time from which on another question may be asked."""
        if self.answer is None:
            return self.asked_s + LONGEST_S
        took_s = max(self.answered_s - self.asked_s, 0.0)
        return max(self.asked_s + LEAST_PAUSE_S, self.answered_s + PAUSES * took_s)


class ReviseCache:
    """Answers of the plans in a store, the latest of each."""

    def __init__(self, store: Store) -> None:
        """Look into a store."""
        self._store = store
        self._latest: dict[str, Answered] = {}
        """By the uid of a plan."""
        self._problems: dict[str, tuple[str, Problem]] = {}
        """By the uid of a plan: the digest of a problem, and that."""

    async def running(
        self,
        plan_uid: str,
        begun: Attempt,
        of_record: HybridPlan,
        reports: Sequence[Observation],
        num_steps: int,
    ) -> RunningPlan:
        """The plan that an attempt of so many steps runs by."""
        stored, attempt = self._store.revisions, begun.number
        revisions = await stored.of(plan_uid, attempt)
        plan = followed_plan(of_record, revisions)
        limits = await self.limits(plan_uid, begun, plan)
        stages = observed_stages(plan, limits, reports, known_lacking(revisions))
        done = max((one.num_steps for one in reports), default=0)
        found = RunningPlan(
            plan=plan,
            limits=limits,
            revisions=revisions,
            unanswered=await stored.unanswered(plan_uid, attempt),
            reports=tuple(reports),
            stages=stages,
            steps_left=max(num_steps - done, 0),
        )
        latest = self._latest.get(plan_uid)
        if latest is None or latest.asked.attempt != attempt:
            return found
        counts = latest.asked.is_like(question_of(found, begun))
        return replace(
            found,
            again_s=latest.again_s,
            answer=latest.answer if counts else None,
            stays=latest.stays if latest.is_of(attempt, plan) else "",
        )

    async def limits(self, plan_uid: str, begun: Attempt, plan: HybridPlan) -> Limits:
        """Limits that an attempt was planned with, whatever the spec says since."""
        problem = await self.problem(plan_uid, begun.problem_digest)
        return Limits(max_gpus=plan.num_gpus) if problem is None else problem.limits

    async def problem(self, plan_uid: str, digest: str) -> Problem | None:
        """The problem that the plan of an attempt answers, if the store has it."""
        known, problem = self._problems.get(plan_uid, ("", None))
        if known != digest:
            problem = await self._store.questions.problem(plan_uid, digest)
            if problem is not None:
                self._problems[plan_uid] = digest, problem
        return problem

    async def answer(
        self, asked: ReviseQuestion, problem: Problem, run: Run
    ) -> Revision | Stays:
        """A revision that is worth it, or why the plan stays.

        `run` computes elsewhere.
        """
        wider = await self._as_replayed(asked.problem_digest, problem, run)
        return await run(partial(asked.answer, wider))

    async def _as_replayed(self, digest: str, problem: Problem, run: Run) -> Problem:
        """The problem as replays have widened it.

        That is not kept, for replays seldom differ: what was searched is searched
        again.
        """
        answer = await self._store.answers.find(digest)
        if answer is None or answer.num_rounds <= 1:
            return problem
        known: dict[str, Replay] = {}
        while True:
            wider, waits_for = await run(partial(replayed_problem, problem, known))
            replay = await self._store.replays.find(waits_for) if waits_for else None
            if replay is None:
                return wider
            known[waits_for] = replay

    def asked(self, plan_uid: str, asked: ReviseQuestion, now_s: float) -> None:
        """Note that the search was asked; `now_s` is since 1970."""
        before = self._latest.get(plan_uid)
        stays = ""
        if before is not None and before.is_of(asked.attempt, asked.plan):
            stays = before.stays
        self._latest[plan_uid] = Answered(asked=asked, asked_s=now_s, stays=stays)

    def answered(
        self,
        plan_uid: str,
        asked: ReviseQuestion,
        answer: Revision | Stays,
        now_s: float,
    ) -> None:
        """Keep an answer, unless something else was asked since."""
        latest = self._latest.get(plan_uid)
        if latest is not None and latest.asked == asked:
            stays = answer.reason if isinstance(answer, Stays) else ""
            self._latest[plan_uid] = replace(
                latest, answer=answer, answered_s=now_s, stays=stays
            )

    def forget(self, plan_uid: str) -> None:
        """Forget a plan that runs no more."""
        self._latest.pop(plan_uid, None)
        self._problems.pop(plan_uid, None)


def known_lacking(revisions: Sequence[RecordedRevision]) -> tuple[int, ...]:
    """Bytes that devices were found to lack, by revisions that ranks followed."""
    found = [
        one.revision.lacking_bytes
        for one in revisions
        if one.state is RevisionState.FOLLOWED and one.revision.lacking_bytes
    ]
    return tuple(max(each) for each in zip(*found, strict=True))


def question_of(running: RunningPlan, begun: Attempt) -> ReviseQuestion:
    """The question of now about a plan whose stages are known."""
    assert running.stages is not None  # noqa: S101 - `running` has made them
    return ReviseQuestion(
        attempt=begun.number,
        problem_digest=begun.problem_digest,
        plan=running.plan,
        stages=running.stages,
        steps_left=running.steps_left,
    )
