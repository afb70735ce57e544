"""Answers of small questions with memory against speed beside the plan."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from plimsoll_cli.output.frontier_table import Curve, curve_of
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.frontier import frontier_of
from tests.support.questions import a_question, solved


@cache
def an_answer(memory_bytes: int = 900) -> Solution:
    """Build an answer with its curve; with 700 bytes it is a single point."""
    problem = a_question(memory_bytes)
    answer = solved(problem)
    return replace(answer, frontier=frontier_of(problem, answer.plan))


def a_curve(memory_bytes: int = 900) -> Curve:
    """Build the curve alone."""
    answer = an_answer(memory_bytes)
    assert answer.frontier is not None
    return curve_of(answer.frontier, answer.plan)
