"""A grid that is searched while a line says how far it is.

In: a question and its answer. Out: the answer with its grid. Called by `plan`, `run`
and `report`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import overload

from rich.console import Console

from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution


@overload
def with_grid(problem: Problem, answer: Solution, limit_s: float) -> Solution: ...
@overload
def with_grid(
    problem: Problem, answer: Solution | Infeasible, limit_s: float
) -> Solution | Infeasible: ...
def with_grid(
    problem: Problem, answer: Solution | Infeasible, limit_s: float
) -> Solution | Infeasible:
    """The answer with a grid beside it, as far as that is searched in `limit_s`.

    Placements of operators have none: each cell would be a search of seconds.
    """
    if problem.places_operators:
        return answer
    # Imported here, for the other verbs need no numpy.
    from plimsoll_planner.search.grid import grid_of  # noqa: PLC0415 - see above

    page = Console(stderr=True, quiet=not Console(stderr=True).is_terminal)
    with page.status("other counts and micro-batches") as status:

        def advance(done: int, total: int) -> None:
            status.update(f"other counts and micro-batches ({done} of {total})")

        grid = grid_of(problem, answer, limit_s, advance)
    return replace(answer, grid=grid)
