"""Least periods against an enumeration of all plans."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.search.periods import groups_up_to
from plimsoll_planner.search.tuple_search import TupleSearch
from tests.support.brute_force import ROUNDING, candidate_of, runnable
from tests.support.drawing import draws
from tests.support.enumerator import Judge
from tests.support.random_questions import asked, divisible


@pytest.mark.slow
@settings(max_examples=draws(20))
@given(st.integers(0, 10**6), st.booleans())
def test_no_step_is_shorter_than_its_periods(seed: int, has_numbers: bool) -> None:
    """With any number in flight, recomputed layers and levels of sharding that fit."""
    question = divisible(asked(seed)) if has_numbers else asked(seed)
    problem = question.problem()
    search, capacity = TupleSearch(problem), question.capacity_bytes
    for mesh in runnable(problem):
        step_s = Judge(problem, "upper", "expected").least_walk_s(mesh, capacity)
        if step_s == math.inf:
            continue
        candidate = candidate_of(problem, mesh)
        for period_s in (
            search.least_period(candidate),
            search.quick_period(candidate),
        ):
            assert period_s * mesh.count <= step_s * (1 + ROUNDING)


@pytest.mark.parametrize("most", [1, 2, 5, 17, 98])
def test_groups_cover_each_number_once(most: int) -> None:
    """They follow one another without a gap, and the last one reaches the most."""
    groups = groups_up_to(most)
    numbers = [k for fewest, largest in groups for k in range(fewest, largest + 1)]
    assert numbers == list(range(1, groups[-1][1] + 1))
    assert groups[-1][0] <= most <= groups[-1][1]
