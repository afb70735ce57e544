"""The plans of the least memory for a count: what must die of memory if a proof holds.

In: a problem and a count. Out: for each mesh the plan with the least peak at any speed,
with what is fixed, planned as if devices held anything. Called where a proof is shown
by running it. Where operators are placed these are `least_placements`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from plimsoll_planner.records.bounds import LARGEST_DEVICE_BYTES
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.records.strategy import meshes_of
from plimsoll_planner.search.answer import solve
from plimsoll_planner.search.least_placements import least_placements
from plimsoll_planner.search.space import chosen

LEAST_MEMORY = Objective(
    goal=Goal.MINIMIZE_MEMORY, rate_floor=0.0, throughput_tolerance=1.0
)


def least_memory_plans(problem: Problem, num_gpus: int) -> Iterator[HybridPlan]:
    """Yield the least-memory plan of every mesh of a count, on the first offer."""
    if problem.places_operators:
        first = replace(problem, offers=problem.offers[:1])
        yield from least_placements(first, num_gpus)
        return
    offer = replace(problem.offers[0], device_memory_bytes=LARGEST_DEVICE_BYTES)
    limits = problem.limits
    of_mesh = replace(
        limits,
        max_gpus=num_gpus,
        whole_nodes=False,
        pipeline_degrees=(),
        data_degrees=(),
        tensor_degrees=(),
    )
    fixed = problem.override
    degrees = fixed.stages, fixed.data_degree, fixed.tensor_degree
    for mesh in meshes_of(num_gpus, problem.tensor_degrees):
        if not mesh.is_within(*map(chosen, degrees)):
            continue
        if mesh.pipeline > len(problem.profile.layers.name):
            continue
        if problem.global_batch_size % mesh.data:
            continue
        if not mesh.is_within(limits.pipeline_degrees, limits.data_degrees):
            continue
        found = solve(
            replace(
                problem,
                offers=(offer,),
                limits=of_mesh,
                objective=LEAST_MEMORY,
                override=replace(
                    fixed,
                    num_gpus=num_gpus,
                    num_stages=mesh.pipeline,
                    tensor_degree=mesh.tensor,
                ),
            )
        )
        if isinstance(found, Solution):
            yield found.plan
