"""Questions whose layers carry values past others, against all plans there are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.answer import solve
from tests.planner.search.test_verdicts import check, judge_all
from tests.support.brute_force import heavier_than_needed, wrongly_failed
from tests.support.carried import carrying
from tests.support.drawing import draws
from tests.support.random_questions import Asked, asked, mixed

SEEDS = st.integers(0, 10**6)


def drawn(seed: int, *, is_mixed: bool) -> tuple[Asked, random.Random]:
    """Draw a question with carried values, and dice for more."""
    dice = random.Random(f"carried {seed}")  # noqa: S311 - no secret
    return carrying(mixed(seed) if is_mixed else asked(seed), dice), dice


def with_floor(question: Asked, dice: random.Random) -> Problem:
    """The question with an absolute floor."""
    floor = dice.uniform(0.02, 0.3)
    objective = replace(question.objective, min_samples_per_s=floor)
    return replace(question, objective=objective).problem()


@settings(max_examples=draws(20))
@given(SEEDS)
def test_tuples_with_carried_values_are_judged_as_by_enumeration(seed: int) -> None:
    """The same verdict on every tuple, with the least peak to the byte."""
    problem = with_floor(*drawn(seed, is_mixed=False))
    for mesh, decision in judge_all(problem).items():
        check(problem, mesh, decision)


@pytest.mark.slow
@settings(max_examples=draws(20))
@given(SEEDS)
def test_no_proof_and_no_promise_breaks_with_carried_values(seed: int) -> None:
    """No count that is proven to fail fits, and no plan as fast is lighter."""
    question, dice = drawn(seed, is_mixed=True)
    problem = question.problem()
    answer = solve(problem)
    assert list(wrongly_failed(question, answer, dice)) == []
    if isinstance(answer, Solution) and not (answer.memory_gap or answer.rate_gap):
        assert list(heavier_than_needed(problem, answer)) == []
