"""Questions to the search and its answers, kept in the store.

In: a plan with all that is known of it. Out: a question that was put in writing, its
answer, and whether the replay that it waits for has come. Called where plans are
observed, and by the executor.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from plimsoll_operator.api.spec import Rehearse, TrainingPlanSpec
from plimsoll_operator.rules.observed_state import Attempt, Ending, ObservedAnswer
from plimsoll_operator.rules.question import question_of
from plimsoll_operator.rules.step_result import is_fixed_by_hand
from plimsoll_operator.rules.summary import headline_of, observed_rehearsal
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.profiles import StoredProfile
from plimsoll_operator.store.questions import Occasion, StoredQuestion
from plimsoll_operator.store.rehearsals import AskedRehearsal
from plimsoll_operator.store.store import Store
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.text.counts import counted, device_noun

ASKED_ANEW = (Ending.OUT_OF_MEMORY, Ending.FOREIGN_FINGERPRINT)
"""Endings after which what is known has changed."""

REFUTED = "the plan before ran out of memory when it was rehearsed, on"

First = Solution | Infeasible | None
"""Answer of a search before any replay; None: there was no search yet."""
Search = Callable[[Problem, Mapping[str, Replay], First], Awaitable[StoredAnswer]]
"""Searches, with the replays that are known by the digest of their plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SolveRequest:
    """A plan that asks."""

    uid: str
    generation: int
    spec: TrainingPlanSpec
    offers: tuple[Offer, ...]
    attempts: Sequence[Attempt]
    keeps_question: bool = False
    """It was a dry run before: what it asked then is asked again, word for word."""

    @property
    def rehearsed_by(self) -> str:
        """Its uid, unless it never rehearses; then empty."""
        return "" if self.spec.launch.rehearse is Rehearse.NEVER else self.uid


@dataclass(frozen=True, kw_only=True, slots=True)
class SolveState:
    """The question of a plan now, and what is known of the answer."""

    question: StoredQuestion
    refusal: str = ""
    """Why the search cannot judge it; empty where it can."""
    answer: ObservedAnswer | None = None
    refuted: str = ""
    """Why the plan before ran out of memory when rehearsed; empty: none did."""


class SolveCache:
    """Questions and answers of the plans in a store."""

    def __init__(self, store: Store) -> None:
        """Look into a store."""
        self._store = store
        self.refused: dict[str, str] = {}
        """By digest: questions that the search cannot judge, and why."""
        self._planned_by: dict[str, str] = {}
        """By digest of a question: that of the plan which answers it."""

    async def question(
        self, request: SolveRequest, profile: StoredProfile
    ) -> StoredQuestion:
        """Question to the search for a plan as it is now.

        Raises:
            InvalidInputError: parts of the spec contradict each other or the profile.
        """
        num_refuted = len(await self._refuted(request, profile))
        return await self._put(request, profile, num_refuted)

    async def _put(
        self, request: SolveRequest, profile: StoredProfile, num_refuted: int
    ) -> StoredQuestion:
        """Question after so many plans that ran out of memory when rehearsed."""
        occasion = Occasion(
            plan_uid=request.uid,
            generation=request.generation,
            round=round_of(request.attempts) + num_refuted,
            profile_digest=profile.digest,
        )
        before = await self._store.questions.find(occasion)
        if before is not None:
            return before
        if request.keeps_question:
            kept = await self._kept(request, occasion)
            if kept is not None:
                return kept
        overheads = await self._store.calibrations.to_plan_with(
            request.offers, profile.profile.fingerprint
        )
        asked = question_of(request.spec, profile.profile, request.offers, overheads)
        return await self._store.questions.put(occasion, asked)

    async def state(self, request: SolveRequest, profile: StoredProfile) -> SolveState:
        """Question and answer, both as they are at one moment.

        A rehearsal that ran out of memory asks another question. One that comes in
        between would be seen beside the question from before it, and end the plan.

        Raises:
            InvalidInputError: parts of the spec contradict each other or the profile.
        """
        while True:
            refuted = await self._refuted(request, profile)
            asked = await self._put(request, profile, len(refuted))
            if asked.digest in self.refused:
                return SolveState(question=asked, refusal=self.refused[asked.digest])
            answer = await self.answer(asked, rehearsed_by=request.rehearsed_by)
            if await self._refuted(request, profile) == refuted:
                text = await self._refuted_text(request, refuted)
                return SolveState(question=asked, answer=answer, refuted=text)

    async def _refuted_text(self, request: SolveRequest, refuted: Sequence[str]) -> str:
        """Why the last of some plans ran out of memory; empty: there is none."""
        if not refuted:
            return ""
        asked = await self._store.rehearsals.asked(request.uid, refuted[-1])
        found = await self._store.rehearsals.find(request.uid, refuted[-1])
        if asked is None or found is None:
            return ""
        seen = observed_rehearsal(asked.plan, found)
        noun = device_noun(asked.plan.offers)
        return f"{REFUTED} {counted(asked.plan.num_gpus, noun)}: {seen.message}"

    async def _refuted(
        self, request: SolveRequest, profile: StoredProfile
    ) -> list[str]:
        """Digests of plans since the latest edit that ran out of memory when rehearsed.

        Each has taught something, so that something else is asked, as often as a person
        allows; what a person fixed is never planned around. Whether a device is here
        now changes nothing, so that no earlier question is asked again.
        """
        has_statistics = bool(profile.profile.batch_statistics)
        if not request.rehearsed_by or is_fixed_by_hand(request.spec, has_statistics):
            return []
        digests = await self._store.questions.digests(request.uid, request.generation)
        refuted = [
            planned
            for planned in [await self._planned(digest) for digest in digests]
            if planned and await self._store.rehearsals.ran_out(request.uid, planned)
        ]
        return refuted[: request.spec.run_policy.oom_replan_limit]

    async def _planned(self, problem_digest: str) -> str:
        """Digest of the plan that answers a question; empty: none yet."""
        if problem_digest not in self._planned_by:
            found = await self._store.answers.find(problem_digest)
            if found is None:
                return ""
            if found.unreplayed:
                return found.unreplayed  # another plan may follow from its replay
            answer = found.answer
            self._planned_by[problem_digest] = (
                digest_of(answer.plan) if isinstance(answer, Solution) else ""
            )
        return self._planned_by[problem_digest]

    async def _kept(
        self, request: SolveRequest, occasion: Occasion
    ) -> StoredQuestion | None:
        """Question of the dry run before, if an edit left that as it was.

        So that what is launched is the plan that people have looked at, though free
        machines and calibrations have changed since.
        """
        for before in (await self._store.questions.of(request.uid))[:1]:
            problem = before.problem
            if digest_of(problem.profile) != occasion.profile_digest:
                return None
            again = question_of(
                request.spec, problem.profile, problem.offers, problem.overheads
            )
            if digest_of(again) == before.digest:
                return await self._store.questions.put(occasion, problem)
        return None

    async def answer(
        self, asked: StoredQuestion, *, rehearsed_by: str = ""
    ) -> ObservedAnswer | None:
        """Answer of the search, and whether the replay that it waits for has come.

        The rehearsal of the plan with the uid `rehearsed_by` counts too; empty: none.
        """
        found = await self._store.answers.find(asked.digest)
        if found is None:
            return None
        waits_for = found.unreplayed
        replay = await self._store.replays.find(waits_for) if waits_for else None
        planned = await self._planned(asked.digest) if rehearsed_by else ""
        rehearsal = None
        if planned and isinstance(found.answer, Solution):
            result = await self._store.rehearsals.find(rehearsed_by, planned)
            if result is not None:
                rehearsal = observed_rehearsal(found.answer.plan, result)
        return ObservedAnswer(
            answer=found.answer,
            problem_digest=asked.digest,
            unreplayed=found.unreplayed,
            has_replay=replay is not None,
            headline=headline_of(asked.problem, found.answer),
            is_certified=found.is_certified,
            num_rounds=found.num_rounds,
            plan_digest=planned,
            rehearsal=rehearsal,
        )

    async def rehearsed_plan(
        self, asked: StoredQuestion, digest: str
    ) -> AskedRehearsal | None:
        """The plan that is to be rehearsed; None: another one answers the question."""
        found = await self._store.answers.find(asked.digest)
        if found is None or not isinstance(found.answer, Solution):
            return None
        plan = found.answer.plan
        if digest_of(plan) != digest:
            return None
        offer = plan.offers[plan.stage_of(plan.fullest_rank).offer]
        usable = asked.problem.limits.usable_bytes(offer.device_memory_bytes)
        return AskedRehearsal(plan=plan, capacity_bytes=usable)

    async def solve(self, asked: StoredQuestion, search: Search) -> None:
        """Let the search answer, with the replays that are known; keep the answer."""
        known: dict[str, Replay] = {}
        found = await self._store.answers.find(asked.digest)
        first = first_answer(found)
        while True:
            try:
                found = await search(asked.problem, known, first)
            except InvalidInputError as error:
                self.refused[asked.digest] = str(error)
                return
            first = first or first_answer(found)
            waits_for = found.unreplayed
            replay = await self._store.replays.find(waits_for) if waits_for else None
            if replay is None:
                break
            known[waits_for] = replay
        await self._store.answers.save(asked.digest, found)

    async def unreplayed_plan(self, asked: StoredQuestion) -> HybridPlan | None:
        """The plan whose replay the search waits for, None where it does not."""
        found = await self._store.answers.find(asked.digest)
        if found is None or not isinstance(found.answer, Solution):
            return None
        return found.answer.plan if found.unreplayed else None


def first_answer(found: StoredAnswer | None) -> First:
    """Answer before any replay, where what was found is that."""
    return None if found is None or found.num_rounds else found.answer


def search_once(
    problem: Problem, known: Mapping[str, Replay], first: First = None
) -> StoredAnswer:
    """Search until an answer stands, or a replay is wanted that is not known."""
    # Imported here, for whoever only looks needs no numpy.
    from plimsoll_planner.search.replayed import solve_with_replay  # noqa: PLC0415

    found = solve_with_replay(problem, lambda plan: known.get(digest_of(plan)), first)
    give_back_memory()
    waits_for = ""
    if found.waits and isinstance(found.answer, Solution):
        waits_for = digest_of(found.answer.plan)
    return StoredAnswer(
        answer=found.answer,
        unreplayed=waits_for,
        is_certified=found.is_certified,
        num_rounds=len(found.rounds),
    )


def replayed_problem(
    problem: Problem, known: Mapping[str, Replay]
) -> tuple[Problem, str]:
    """The problem as replays have widened it; the digest of one that is not known."""
    from plimsoll_planner.search.replayed import solve_with_replay  # noqa: PLC0415

    found = solve_with_replay(problem, lambda plan: known.get(digest_of(plan)))
    give_back_memory()
    if found.waits and isinstance(found.answer, Solution):
        return found.problem, digest_of(found.answer.plan)
    return found.problem, ""


def give_back_memory() -> None:
    """Let go of what a search leaves behind, 1.4 GiB after a large one.

    Its arrays are part of cycles, and malloc keeps their pages for this thread alone.
    """
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # as glibc has
        trim(0)


def round_of(attempts: Sequence[Attempt]) -> int:
    """Number of changes of the question by what attempts have taught."""
    return sum(attempt.ending in ASKED_ANEW for attempt in attempts)
