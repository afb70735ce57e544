"""Answers to whether a plan is revised: whose, and when it is asked for anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

pytest.importorskip("numpy")

from plimsoll_operator.rules.observed_state import (
    Attempt,
    RecordedRevision,
    RevisionState,
    RunningPlan,
)
from plimsoll_operator.solving.revise_cache import (
    LEAST_PAUSE_S,
    LONGEST_S,
    PAUSES,
    ReviseCache,
    ReviseQuestion,
    question_of,
)
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.questions import Occasion
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.revision import Cause, Revision
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.revising.observed import ObservedStages
from plimsoll_planner.revising.revise import Stays
from plimsoll_planner.search.replayed import largest, solve_with_replay
from plimsoll_planner.units import MIB
from tests.planner.search.test_replayed import a_problem as blocks_on
from tests.planner.search.test_replayed import replay_as
from tests.support.builders import a_problem, a_revision, a_solution
from tests.support.stores import in_store

T = TypeVar("T")
SOLUTION = a_solution()
STAYS = Stays(reason="it is the best")


async def running(cache: ReviseCache, attempt: int) -> RunningPlan:
    """The plan of an attempt of which nothing is reported yet."""
    begun = Attempt(number=attempt)
    return await cache.running("uid", begun, SOLUTION.plan, [], 100)


def test_a_search_is_waited_for(tmp_path: Path) -> None:
    """But not for ever: its process may be gone; what took long is asked seldom."""

    async def work(store: Store) -> None:
        cache = ReviseCache(store)
        asked = question_of(await running(cache, 1), Attempt(number=1))
        assert (await running(cache, 1)).again_s == 0
        cache.asked("uid", asked, 1000.0)
        found = await running(cache, 1)
        assert (found.answer, found.again_s) == (None, 1000 + LONGEST_S)
        cache.answered("uid", asked, STAYS, 1000.1)
        found = await running(cache, 1)
        assert (found.answer, found.again_s) == (STAYS, 1000 + LEAST_PAUSE_S)
        cache.asked("uid", asked, 2000.0)
        cache.answered("uid", asked, STAYS, 2010.0)
        assert (await running(cache, 1)).again_s == 2010 + 10 * PAUSES

    in_store(tmp_path / "plimsoll.db", work)


def test_an_answer_is_of_its_attempt(tmp_path: Path) -> None:
    """The next one may have other devices; what has ended is forgotten."""

    async def work(store: Store) -> None:
        cache = ReviseCache(store)
        asked = question_of(await running(cache, 1), Attempt(number=1))
        cache.asked("uid", asked, 1000.0)
        cache.answered("uid", asked, STAYS, 1000.1)
        other = await running(cache, 2)
        assert (other.answer, other.again_s) == (None, 0)
        cache.forget("uid")
        assert (await running(cache, 1)).answer is None

    in_store(tmp_path / "plimsoll.db", work)


def test_why_a_plan_stays_is_known_until_something_else_is_found(
    tmp_path: Path,
) -> None:
    """Also while another search is under way."""

    async def work(store: Store) -> None:
        cache = ReviseCache(store)
        asked = question_of(await running(cache, 1), Attempt(number=1))
        cache.asked("uid", asked, 1000.0)
        assert (await running(cache, 1)).stays == ""
        cache.answered("uid", asked, STAYS, 1000.1)
        cache.asked("uid", asked, 2000.0)
        assert (await running(cache, 1)).stays == STAYS.reason
        assert (await running(cache, 2)).stays == ""
        cache.answered("uid", asked, a_revision(SOLUTION.plan), 2000.1)
        assert (await running(cache, 1)).stays == ""

    in_store(tmp_path / "plimsoll.db", work)


def test_limits_are_those_that_were_planned_with(tmp_path: Path) -> None:
    """By them devices are judged; where no question is known only the GPUs count."""
    problem = replace(a_problem(), limits=Limits(max_gpus=8, headroom=0.25))
    asked = Occasion(plan_uid="uid", generation=1, round=0, profile_digest="0" * 64)

    async def work(store: Store) -> None:
        put = await store.questions.put(asked, problem)
        cache, plan = ReviseCache(store), SOLUTION.plan
        begun = Attempt(number=1, problem_digest=put.digest)
        found = await cache.running("uid", begun, plan, [], 100)
        assert found.limits == problem.limits
        unknown = (await running(cache, 2)).limits
        assert unknown == Limits(max_gpus=plan.num_gpus)

    in_store(tmp_path / "plimsoll.db", work)


def test_a_question_is_another_once_something_else_is_seen() -> None:
    """Seconds that are off by no more than a tenth are the same."""
    plan = SOLUTION.plan
    stages = ObservedStages(passes_s=(1.0, 2.0), lacking_bytes=(0, 0), cause=Cause.PACE)
    asked = ReviseQuestion(
        attempt=1, problem_digest="", plan=plan, stages=stages, steps_left=100
    )

    def is_like(**fields: Any) -> bool:
        return replace(asked, stages=replace(stages, **fields)).is_like(asked)

    assert is_like(passes_s=(1.09, 1.81))
    assert not is_like(passes_s=(1.0, 2.21))
    assert not is_like(lacking_bytes=(0, 1))
    assert not is_like(cause=Cause.PEAK)
    assert replace(asked, steps_left=50).is_like(asked)
    assert not replace(asked, attempt=2).is_like(asked)
    assert not replace(asked, plan=a_revision(plan).plan).is_like(asked)


def test_what_devices_lack_is_known_from_revisions_before(tmp_path: Path) -> None:
    """Of those that ranks followed: the most of each stage."""
    plan = SOLUTION.plan

    async def work(store: Store) -> None:
        for number, lacking in ((2, (8, 0)), (3, (4, 16)), (4, (64, 64))):
            made = a_revision(plan)
            numbered = replace(made.plan, revision=number)
            revision = replace(made, plan=numbered, lacking_bytes=lacking)
            await store.revisions.record("uid", 1, revision, 5.0)
            if number < 4:
                followed = RecordedRevision(
                    revision=revision, made_s=5.0, state=RevisionState.FOLLOWED
                )
                await store.revisions.settle("uid", 1, followed)
        stages = (await running(ReviseCache(store), 1)).stages
        assert stages is not None
        assert stages.lacking_bytes == (8, 16)

    in_store(tmp_path / "plimsoll.db", work)


def test_what_replays_have_refuted_is_not_offered_again(tmp_path: Path) -> None:
    """The search counts with the intervals that replays have widened.

    Every rank holds 8 % more than the formula says.
    """
    memory = 84
    two_stages = Override(num_stages=2, data_degree=1)
    problem = replace(blocks_on(memory), override=two_stages)
    answered = solve_with_replay(problem, replay_as(1.08, []))
    assert isinstance(answered.answer, Solution)
    plan = answered.answer.plan
    passes = [stage.passes.expected_s for stage in plan.stages if stage.passes]
    asked = ReviseQuestion(
        attempt=1,
        problem_digest=digest_of(problem),
        plan=plan,
        stages=ObservedStages(
            passes_s=(passes[0], 2 * passes[1]), lacking_bytes=(0, 0), cause=Cause.PACE
        ),
        steps_left=100_000,
    )

    async def now(work: Callable[[], T]) -> T:
        return work()

    def beyond(found: Revision | Stays) -> bool:
        stages = found.plan.stages if isinstance(found, Revision) else ()
        peaks = [1.08 * largest(stage).expected_bytes for stage in stages]
        return any(peak > memory * MIB for peak in peaks)

    async def work(store: Store) -> None:
        for one in answered.rounds:
            await store.replays.save(one.replay)
        cache = ReviseCache(store)
        assert beyond(await cache.answer(asked, problem, now))  # nobody has replayed
        stored = StoredAnswer(
            answer=answered.answer,
            unreplayed="",
            is_certified=True,
            num_rounds=len(answered.rounds),
        )
        await store.answers.save(asked.problem_digest, stored)
        assert not beyond(await cache.answer(asked, problem, now))

    in_store(tmp_path / "plimsoll.db", work)
