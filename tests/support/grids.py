"""Answers of small questions with other counts and micro-batches beside the plan."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.grid import grid_of
from tests.support.questions import a_question, solved


def a_grid_question(**fields: Any) -> Problem:
    """Ask for a hundred steps on devices of 900 bytes; the plan takes three."""
    return a_question(900, num_steps=100, **fields)


@cache
def an_answer() -> Solution:
    """Build its answer with all cells of the grid."""
    return with_whole_grid(a_grid_question())


def with_whole_grid(problem: Problem) -> Solution:
    """Answer a question, with all cells of the grid."""
    answer = solved(problem)
    return replace(answer, grid=grid_of(problem, answer, limit_s=1e9))
