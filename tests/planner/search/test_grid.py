"""The grid of counts and micro-batches: each cell is an answer of the search."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.records.certificate import Binding
from plimsoll_planner.records.frontier import FrontierPoint
from plimsoll_planner.records.grid import Grid, GridCell
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution, Termination
from plimsoll_planner.search.answer import solve, solve_as_fixed
from plimsoll_planner.search.grid import MOST_OFFERS, GridSearch, grid_of
from tests.support.drawing import draws
from tests.support.questions import a_device, a_question, refused, solved
from tests.support.random_questions import asked, divisible, hosted, mixed

ALONE = (400, 520, 640, 700, 900, 2300)
"""Memory of devices on which cells fit, fail, or are open."""


def drawn(problem: Problem, answer: Solution | Infeasible | None = None) -> Grid:
    """Draw all of the grid of a question."""
    found = grid_of(problem, answer or solve(problem), limit_s=1e9)
    assert found is not None
    return found


def own_cell(grid: Grid, answer: Solution) -> GridCell:
    """Find the cell of the plan."""
    plan = answer.plan
    return next(
        one
        for one in grid.cells
        if answer.certificate.space.offers[one.offer] == plan.offers[0]
        and (one.num_gpus, one.micro_batch) == (plan.num_gpus, plan.micro_batch)
    )


def check(problem: Problem, cell: GridCell) -> None:
    """Hold a cell against the answer to its own question."""
    fixed = replace(
        problem.override, num_gpus=cell.num_gpus, micro_batch=cell.micro_batch
    )
    offer = problem.offers[cell.offer]
    asked = replace(problem, offers=(offer,), override=fixed)
    answer = solve_as_fixed(asked, time.perf_counter)
    verdict = answer.certificate.counts[cell.num_gpus - 1]
    assert cell.verdict is verdict.verdict
    assert cell.binding is verdict.binding
    is_fit = isinstance(answer, Solution) and (
        answer.termination is not Termination.FIXED
    )
    assert is_fit is (cell.verdict is Verdict.FITS)
    if is_fit and isinstance(answer, Solution):
        assert cell.plan == FrontierPoint.of(answer.plan, 0)
        assert cell.price_per_hour == answer.plan.price_per_hour
    if cell.binding is not Binding.MEMORY and cell.verdict is Verdict.FAILS:
        assert cell.least_bytes == 0
    if cell.binding is Binding.MEMORY:
        assert verdict.nearest_miss is not None
        assert cell.least_bytes == verdict.nearest_miss.needed_bytes


GOALS = {
    "gpus": Objective(),
    "memory": Objective(goal=Goal.MINIMIZE_MEMORY),
    "rate": Objective(goal=Goal.MAXIMIZE_THROUGHPUT),
    "cost": Objective(goal=Goal.MINIMIZE_COST),
    "floor": Objective(min_samples_per_s=0.07),
}


@pytest.mark.parametrize("objective", GOALS.values(), ids=GOALS)
def test_each_cell_is_the_answer_to_its_own_question(objective: Objective) -> None:
    """For each goal: verdict, reason, peak, speed, price and plan, on two machines."""
    offers = (
        a_device(520, name="small", price_per_node_hour=Decimal(3)),
        a_device(900, name="large", price_per_node_hour=Decimal(8)),
    )
    problem = a_question(
        offers=offers,
        objective=objective,
        num_steps=10,
        global_batch_size=4,
        limits=Limits(max_gpus=4),
    )
    answer = solved(problem)
    grid = drawn(problem, answer)
    own = own_cell(grid, answer)
    assert own.plan == FrontierPoint.of(answer.plan, 0)
    assert own.price_per_hour == answer.plan.price_per_hour
    assert {one.offer for one in grid.cells} == {0, 1}
    assert {one.verdict for one in grid.cells} >= {Verdict.FITS, Verdict.FAILS}
    for cell in grid.cells:
        if cell != own:
            check(problem, cell)


@settings(max_examples=draws(15))
@given(st.integers(0, 10**6))
def test_cells_of_any_question_are_answers(seed: int) -> None:
    """Uncertain bytes and seconds, floors, shared cores, state on hosts."""
    problem = mixed(seed).problem()
    answer = solve(problem)
    grid = drawn(problem, answer)
    for cell in grid.cells:
        if not isinstance(answer, Solution) or cell != own_cell(grid, answer):
            check(problem, cell)


def test_axes_hold_the_plan_and_the_count_below_it() -> None:
    """Doublings otherwise, up to what was asked for and what there is."""
    problem = a_question(600, limits=Limits(max_gpus=12))
    answer = solved(problem)
    assert answer.plan.num_gpus == 4
    grid = drawn(problem, answer)
    assert sorted({one.num_gpus for one in grid.cells}) == [1, 2, 3, 4, 8, 12]
    assert sorted({one.micro_batch for one in grid.cells}) == [1, 2, 4, 8]
    few = a_device(700, nodes_available=1, devices_per_node=4)
    grid = drawn(replace(problem, offers=(few,)))
    assert max(one.num_gpus for one in grid.cells) == 4


def test_what_is_fixed_besides_stays_fixed() -> None:
    """Counts are those that the fixed degrees allow; none of them is no grid."""
    fixed = Override(num_gpus=6, data_degree=2)
    problem = a_question(900, override=fixed)
    grid = drawn(problem)
    assert {one.num_gpus for one in grid.cells} == {2, 4, 6, 8}
    plans = [one.plan for one in grid.cells if one.plan is not None]
    assert plans
    assert all(plan.mesh.data == 2 for plan in plans)
    # Three replicas of which no batch of eight can be made.
    single = replace(problem, override=Override(data_degree=2, micro_batch=4))
    assert {one.micro_batch for one in drawn(single).cells} == {1, 2, 4}


def test_time_runs_out_cell_by_cell_from_the_plan_outwards() -> None:
    """What was not searched has no verdict; what was is as it would be with time."""
    problem = a_question(900)
    answer = solved(problem)
    every = drawn(problem, answer)
    ticks = count()
    told: list[tuple[int, int]] = []
    some = grid_of(
        problem,
        answer,
        limit_s=60.0,
        advance=lambda done, total: told.append((done, total)),
        clock=lambda: float(next(ticks)),
    )
    assert some is not None
    assert 0 < some.num_unsearched < len(some.cells)
    assert told == [(done, len(some.cells)) for done in range(len(some.cells))]
    for one, other in zip(some.cells, every.cells, strict=True):
        assert one == other or one.verdict is None
    none = grid_of(problem, answer, limit_s=0.0)
    assert none is not None
    assert [one for one in none.cells if one.verdict] == [own_cell(every, answer)]


def test_places_begin_with_the_plan_and_its_neighbours() -> None:
    """Without a plan with the largest count, which comes nearest to fitting."""
    problem = a_question(900)
    answer = solved(problem)
    first, *others = GridSearch(problem, answer).places()
    plan = answer.plan
    assert (first.num_gpus, first.micro_batch) == (plan.num_gpus, plan.micro_batch)
    assert {one.num_gpus for one in others[:2]} < {2, 3, 4}
    small = a_question(200, limits=Limits(max_gpus=3))
    first = GridSearch(small, refused(small)).places()[0]
    assert (first.num_gpus, first.micro_batch) == (3, 1)


def test_like_machines_are_one_kind_at_the_lowest_price() -> None:
    """Unless the plan is on a dearer one; kinds beyond the most are counted."""
    offers = tuple(
        a_device(
            700 + 100 * (place // 2),
            name=f"machine {place}",
            price_per_node_hour=Decimal(9 - place),
        )
        for place in range(2 * MOST_OFFERS + 2)
    )
    problem = a_question(offers=offers)
    answer = solved(problem)
    grid = drawn(problem, answer)
    places = {one.offer for one in grid.cells}
    assert len(places) == MOST_OFFERS
    assert all(place % 2 for place in places)
    assert grid.num_offers_left_out == 1


def test_a_plan_that_was_fixed_and_does_not_fit_is_no_cell_that_fits() -> None:
    """Its cell is judged like any other."""
    problem = a_question(400, override=Override(num_gpus=2, micro_batch=1))
    answer = solved(problem)
    assert answer.termination is Termination.FIXED
    cell = own_cell(drawn(problem, answer), answer)
    assert cell.verdict is Verdict.FAILS


@pytest.mark.parametrize("memory_bytes", ALONE)
def test_cells_that_are_open_say_what_every_plan_needs(memory_bytes: int) -> None:
    """Lower bounds of what fails are above the device, of what is open below it."""
    problem = replace(mixed(3).problem(), override=Override())
    offer = replace(problem.offers[0], device_memory_bytes=memory_bytes // 10)
    for cell in drawn(replace(problem, offers=(offer,))).cells:
        if cell.binding is Binding.MEMORY:
            assert cell.least_bytes > offer.device_memory_bytes
        if cell.verdict is Verdict.UNDECIDED:
            assert cell.least_bytes <= offer.device_memory_bytes


def test_memory_of_the_machine_is_not_taken_for_that_of_the_device() -> None:
    """A cell that lacks the machine's says so, and no bytes of a device."""
    seed = 70
    problem = hosted(divisible(asked(seed)), seed).problem()
    cells = drawn(problem).cells
    lacking = [one for one in cells if one.binding is Binding.HOST_MEMORY]
    assert lacking
    for cell in lacking:
        check(problem, cell)
