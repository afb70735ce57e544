"""Verdict of all plans of a small question on an answer: every mesh, cut and choice.

In: a question of `random_questions` and the planner's answer. Out: what is wrong with
it. The enumerator shares nothing with the search but the records.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.search.baselines import uniform_cuts
from plimsoll_planner.search.space import Candidate, families_of, members_of
from plimsoll_planner.search.tuple_search import LeastMemory, TupleSearch
from tests.support.enumerated_costs import Mesh
from tests.support.enumerator import Judge, meshes
from tests.support.random_questions import Asked

NUM_DRAWS = 4
"""How often seconds are drawn from inside their intervals."""
ROUNDING = 1e-6
"""Relative: the search counts in whole ticks of 2^-32 s."""


def runnable(problem: Problem) -> list[Mesh]:
    """Meshes whose batch divides, with as many micro-batches as stages."""
    return [mesh for mesh in meshes(problem) if mesh.count >= mesh.stages]


def best_rates(problem: Problem, which_bytes: str) -> dict[int, float]:
    """Most samples per second of every count, seconds as expected, over all plans."""
    judge = Judge(problem, which_bytes, "expected")
    capacity = problem.offers[0].device_memory_bytes
    found: dict[int, float] = {}
    for mesh in runnable(problem):
        rate = problem.global_batch_size / judge.least_walk_s(mesh, capacity)
        found[mesh.gpus] = max(found.get(mesh.gpus, 0.0), rate)
    return found


def floor_of(problem: Problem, rates: dict[int, float], count: int) -> float:
    """Rate that a count must reach, by the definition of the floor."""
    if problem.objective.min_samples_per_s is not None:
        return problem.objective.min_samples_per_s
    per_gpu = max((rate / gpus for gpus, rate in rates.items()), default=0.0)
    return problem.objective.rate_floor * per_gpu * count


def wrongly_failed(
    question: Asked, answer: Solution | Infeasible, dice: random.Random
) -> Iterator[str]:
    """Yield the counts certified to fail that fit and are fast enough, at some time."""
    counts = answer.certificate.counts
    failing = [c.num_gpus for c in counts if c.verdict is Verdict.FAILS]
    if not failing:
        return
    for _ in range(NUM_DRAWS):
        drawn = question.drawn(dice).problem()
        for which_bytes in ("lower", "upper"):
            rates = best_rates(drawn, which_bytes)
            for count in failing:
                rate, needed = rates.get(count, 0.0), floor_of(drawn, rates, count)
                if rate > 0 and rate >= needed * (1 + ROUNDING):
                    yield f"{count} GPUs: {rate} samples/s of {needed} needed"


def heavier_than_needed(problem: Problem, answer: Solution) -> Iterator[str]:
    """Yield by what the plan is heavier than the least memory that is promised.

    That is the least peak of all plans of the count that reach the floor and are at
    most the tolerance slower than the fastest of them.
    """
    judge = Judge(problem, "upper", "expected")
    capacity = problem.offers[0].device_memory_bytes
    mine = [m for m in runnable(problem) if m.gpus == answer.plan.num_gpus]
    fastest_s = min(judge.least_walk_s(mesh, capacity) for mesh in mine)
    best_rate = problem.global_batch_size / fastest_s
    floor = answer.certificate.counts[answer.plan.num_gpus - 1].floor_samples_per_s
    tolerance = problem.objective.throughput_tolerance
    needed = max(floor, (1 - tolerance) * best_rate) * (1 - ROUNDING)
    target_s = problem.global_batch_size / needed if needed else math.inf
    least = min(judge.least_peak_at(mesh, capacity, target_s) for mesh in mine)
    peak = answer.plan.peak_bytes or 0
    rate = answer.plan.samples_per_s or 0.0
    if rate < needed * (1 - ROUNDING):
        yield f"{rate} samples/s, and {needed} are promised"
    if peak > least:
        yield f"{peak} bytes, and {least} would do"


def heavier_with_freedom(problem: Problem) -> Iterator[tuple[str, bool]]:
    """Yield where more freedom made the least peak of a tuple higher at one speed.

    Each tuple is planned with uniform cuts and nothing recomputed, with either of the
    two left free, and with both; the step of the first is what the others may take.
    With it goes whether that is open: the heavier plan is not proven the least.
    """
    nothing = replace(problem, override=Override(recomputed_layers=()))
    free = TupleSearch(problem)
    for mesh in runnable(problem):
        candidate = candidate_of(problem, mesh)
        cuts_of = partial(uniform_cuts, free.tables.num_layers)
        fixed = TupleSearch(nothing, cuts_of)
        plan = fixed.least_peak_plan(candidate)
        if plan is None:
            continue
        cut, again, both = (
            least_memory_at(search, candidate, plan.step_s)
            for search in (TupleSearch(nothing), TupleSearch(problem, cuts_of), free)
        )
        lightest = max(plan.peaks)
        for name, freer in (("cuts", cut), ("recompute", again), ("both", both)):
            peak = max(freer.found.peaks)
            if peak > lightest:
                text = f"{mesh}: {name} free: {peak} bytes, and {lightest} would do"
                yield text, freer.least_bytes <= lightest
            if freer is again:
                lightest = min(lightest, max(cut.found.peaks), peak)


def least_memory_at(
    search: TupleSearch, candidate: Candidate, target_s: float
) -> LeastMemory:
    """Least peak of a tuple at any capacity that a step of `target_s` allows."""
    fastest = search.quickest_within(candidate, LARGEST_BYTES)
    assert fastest is not None
    return search.least_memory(fastest, target_s)


def candidate_of(problem: Problem, mesh: Mesh) -> Candidate:
    """The search's name of a mesh."""
    limits = len(problem.profile.layers.name)
    return next(
        c
        for c in members_of(families_of(problem, limits, mesh.gpus))
        if (c.num_stages, c.micro_batch) == (mesh.stages, mesh.samples)
        and c.mesh.tensor == mesh.tensor
        and c.strategy.sequence_parallel == mesh.is_sequence
    )
