"""The placements of the least memory for a count, also those that do not fit.

In: a problem whose engine places operators, and a count. Out: for each mesh and offer
the plan with the least peak among its micro-batches. Called by `least_memory_plans`,
where a proof is shown by running it. Placement is heuristic: another one may need less,
though never less than a bound that the proof rests on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.search.placed_answer import plan_of
from plimsoll_planner.search.placed_numbers import peak_of
from plimsoll_planner.search.placed_tuples import PlacedTuple, Placer


def least_placements(problem: Problem, num_gpus: int) -> Iterator[HybridPlan]:
    """Yield the least-memory plan of every mesh of a count, on every offer.

    Raises:
        CannotPlanError: the profile has no graphs, or the question asks for layers.
    """
    placed = [one for one in Placer(problem).tuples(num_gpus) if one.placement]
    for _, members in groupby(placed, key=mesh_and_offer):
        yield plan_of(problem, min(members, key=peak_of))


def mesh_and_offer(one: PlacedTuple) -> tuple[Mesh, int]:
    """Order of the tuples of a count."""
    return one.mesh, one.offer
