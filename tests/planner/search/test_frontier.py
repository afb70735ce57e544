"""Memory against speed, held against an independent enumeration of all plans."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.memory.option_arrays import build_options
from plimsoll_planner.records.frontier import Frontier
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution, Termination
from plimsoll_planner.search import cost_tables, variant_tables
from plimsoll_planner.search.answer import solve
from plimsoll_planner.search.frontier import frontier_of
from tests.planner.search.test_gaps import questions
from tests.support.brute_force import ROUNDING, runnable
from tests.support.drawing import draws
from tests.support.enumerator import Judge
from tests.support.questions import a_device, a_question, solved
from tests.support.random_questions import asked, divisible


def drawn(problem: Problem, num_speeds: int = 8) -> tuple[Solution, Frontier]:
    """Answer a question, and draw its curve."""
    answer = solved(problem)
    found = frontier_of(problem, answer.plan, num_speeds)
    assert found is not None
    return answer, found


def check(problem: Problem, answer: Solution, found: Frontier) -> None:
    """Hold every point against all plans of as many devices."""
    judge = Judge(problem, "upper", "expected")
    capacity = problem.offers[0].device_memory_bytes
    meshes = [mesh for mesh in runnable(problem) if mesh.gpus == found.num_gpus]
    for point in found.points:
        target_s = point.step_time.expected_s * (1 + ROUNDING)
        least = min(judge.least_peak_at(mesh, capacity, target_s) for mesh in meshes)
        assert point.least_peak_bytes <= least <= point.peak_bytes
        assert point.peak_bytes == least or point.least_peak_bytes < point.peak_bytes
    fastest_s = min(judge.least_walk_s(mesh, capacity) for mesh in meshes)
    assert found.points[0].step_time.expected_s >= fastest_s * (1 - ROUNDING)
    least = min(judge.least_peak(mesh) for mesh in meshes)
    assert found.points[-1].peak_bytes == least
    assert is_on_or_above(answer, found)


def is_on_or_above(answer: Solution, found: Frontier) -> bool:
    """Whether the plan is not better than the curve at its speed."""
    plan = answer.plan
    assert plan.step_time is not None
    as_fast = [
        point.peak_bytes
        for point in found.points
        if point.step_time.expected_s <= plan.step_time.expected_s
    ]
    return min(as_fast) <= (plan.peak_bytes or 0)


@settings(max_examples=draws(20))
@given(st.integers(0, 10**6), st.booleans())
def test_no_plan_as_fast_is_lighter(seed: int, is_divisible: bool) -> None:
    """Every cut, recompute set, sharding and number in flight of 3 to 6 layers."""
    question = asked(seed)
    problem = (divisible(question) if is_divisible else question).problem()
    answer = solve(problem)
    if not isinstance(answer, Solution) or answer.termination is Termination.FIXED:
        return
    found = frontier_of(problem, answer.plan, 6)
    assert found is not None
    check(problem, answer, found)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (variant_tables, "build_options", partial(build_options, most=2)),
        (cost_tables, "MOST_GROUPS", 3),
    ],
)
@settings(max_examples=draws(20))
@given(problem=questions())
def test_a_bound_covers_plans_that_were_left_out(
    problem: Problem, module: ModuleType, name: str, value: object
) -> None:
    """Pruned options, cuts between layers of a group: no such plan is below it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, value)
        answer = solve(problem)
        if not isinstance(answer, Solution):
            return
        found = frontier_of(problem, answer.plan, 6)
    exact = frontier_of(problem, answer.plan)
    assert found is not None
    assert exact is not None
    for point, other in product(found.points, exact.points):
        if other.step_time.expected_s <= point.step_time.expected_s:
            assert other.peak_bytes >= point.least_peak_bytes


def test_the_ends_are_the_fastest_plan_and_the_least_memory() -> None:
    """Steps rise, peaks fall; more speeds add points and move neither end."""
    problem = a_question(900)
    answer, found = drawn(problem)
    _, few = drawn(problem, 3)
    assert (len(few.points), len(found.points)) == (3, 6)
    for curve in (found, few):
        assert is_on_or_above(answer, curve)
        assert curve.points[0].peak_bytes <= curve.capacity_bytes == 900
        for faster, slower in pairwise(curve.points):
            assert faster.step_time.expected_s < slower.step_time.expected_s
            assert faster.peak_bytes > slower.peak_bytes
            assert faster.least_peak_bytes >= slower.least_peak_bytes
    assert found.points[0] == few.points[0]
    assert found.points[-1] == few.points[-1]
    assert found.points[0].samples_per_s > (answer.plan.samples_per_s or 0) * 0.99


def test_a_point_is_the_plan_of_least_memory_at_its_rate() -> None:
    """`MinimizeMemory` with the rate as its floor finds the same plan again."""
    problem = a_question(900)
    answer, found = drawn(problem)
    for point in found.points:
        asked_again = replace(
            problem,
            objective=Objective(
                goal=Goal.MINIMIZE_MEMORY,
                min_samples_per_s=point.samples_per_s * (1 - ROUNDING),
            ),
            limits=Limits(max_gpus=answer.plan.num_gpus),
            override=Override(num_gpus=answer.plan.num_gpus),
        )
        assert solved(asked_again).plan.peak_bytes == point.peak_bytes


def test_the_plan_is_one_of_the_points() -> None:
    """Its cuts and choices are those of the plan that is launched."""
    answer, found = drawn(a_question(900))
    plan = answer.plan
    (own,) = [
        point
        for point in found.points
        if point.peak_bytes == plan.peak_bytes and point.step_time == plan.step_time
    ]
    assert own.cuts == tuple(stage.chunks[0].first_layer for stage in plan.stages)
    assert own.in_flight_caps == tuple(stage.in_flight_cap for stage in plan.stages)
    assert own.num_recomputed == tuple(len(s.recomputed_layers) for s in plan.stages)
    assert own.mesh == plan.mesh
    assert math.isclose(own.samples_per_s, plan.samples_per_s or 0)


def test_one_plan_is_one_point() -> None:
    """With everything fixed there is nothing to choose from."""
    override = Override(
        num_stages=2,
        data_degree=1,
        micro_batch=1,
        cuts=(0, 5),
        recomputed_layers=(),
        in_flight_caps=(2, 1),
    )
    _, found = drawn(a_question(3000, override=override))
    assert len(found.points) == 1
    assert found.points[0].least_peak_bytes == found.points[0].peak_bytes


def test_only_plans_of_the_offer_that_fit_are_drawn() -> None:
    """A larger device beside it changes nothing; where no plan fits is no curve."""
    alone, large = a_device(900), a_device(5000, name="large")
    problem = a_question(offers=(alone,))
    plan = solved(problem).plan
    found = frontier_of(problem, plan)
    beside = frontier_of(a_question(offers=(large, alone)), plan)
    assert found is not None
    assert beside is not None
    assert beside.points == found.points
    small = replace(problem, offers=(a_device(100),))
    assert frontier_of(small, replace(plan, offers=small.offers)) is None


def test_what_was_not_searched_has_no_bound() -> None:
    """Beyond the work limit a lighter plan may be anywhere."""
    whole = a_question(900)
    plan = solved(whole).plan
    cut_off = replace(whole, limits=Limits(max_gpus=plan.num_gpus, max_tuples=1))
    found = frontier_of(cut_off, plan)
    assert found is not None
    assert {point.least_peak_bytes for point in found.points} == {0}


def test_a_replayed_peak_is_no_point_of_the_formula() -> None:
    """A plan whose peaks were narrowed below the bound does not bend the curve."""
    problem = a_question(900)
    answer, found = drawn(problem)
    stages = tuple(
        replace(stage, peaks=stage.peaks[:1]) for stage in answer.plan.stages
    )
    narrowed = replace(answer.plan, stages=stages)
    assert (narrowed.peak_bytes or 0) < (answer.plan.peak_bytes or 0)
    other = frontier_of(problem, narrowed, 8)
    assert other is not None
    assert other.points == found.points
