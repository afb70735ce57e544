"""Answers to whether a plan is revised: whose, and when it is asked for anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plimsoll_operator.rules.observed_state import Attempt, RunningPlan
from plimsoll_operator.solving.revise_cache import (
    LEAST_PAUSE_S,
    LONGEST_S,
    PAUSES,
    ReviseCache,
    question_of,
)
from plimsoll_operator.store.questions import Occasion
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.revising.revise import Stays
from tests.support.builders import a_problem, a_revision, a_solution
from tests.support.stores import in_store

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
        asked = question_of(await running(cache, 1), 1)
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
        asked = question_of(await running(cache, 1), 1)
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
        asked = question_of(await running(cache, 1), 1)
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
