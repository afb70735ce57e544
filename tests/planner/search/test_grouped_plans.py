"""Bounds of a step, from next-fit groups and from walks, against all plans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.search.numbers import FAILING
from plimsoll_planner.search.tuple_search import TupleSearch
from tests.support.brute_force import candidate_of
from tests.support.enumerator import Judge, meshes
from tests.support.random_questions import asked

NUM_QUESTIONS = 40
BATCH = 12
"""Samples of a step; the pipelines are much shorter."""
ROUNDING = 1e-9


def test_groups_and_walks_bound_the_step_of_every_plan() -> None:
    """At lower bytes and seconds; with few stages walks leave nothing open."""
    seen: Counter[str] = Counter()
    for seed in range(NUM_QUESTIONS):
        problem = replace(asked(seed), global_batch_size=BATCH).problem()
        search, judge = TupleSearch(problem), Judge(problem, "lower")
        capacity = problem.offers[0].device_memory_bytes
        for mesh in meshes(problem):
            if not 1 < mesh.stages < mesh.count:
                continue
            candidate = candidate_of(problem, mesh)
            room = search.capacity(candidate, Bound.LOWER)
            of_stages = search.least_bound(candidate, FAILING, room)
            if of_stages is None:
                assert judge.least_peak(mesh) > capacity
                continue
            shortest_s = judge.least_walk_s(mesh, capacity) * (1 + ROUNDING)
            target_s = shortest_s * (1 - 2 * ROUNDING)
            by_groups_s = search.group_bound(candidate, FAILING, room)
            walked_s = search.least_walk_s(candidate, target_s)
            assert max(by_groups_s, walked_s) <= shortest_s
            seen["tuples"] += 1
            seen["groups bound better"] += by_groups_s > of_stages.value
            seen["nothing faster, by walks"] += walked_s > target_s
    assert seen["groups bound better"] > 0
    assert seen["nothing faster, by walks"] == seen["tuples"] > NUM_QUESTIONS
