"""The gap of an answer covers every better plan, also those that were not compared."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.memory.option_arrays import build_options
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import LEAST_GAP, Solution, Termination
from plimsoll_planner.search import cost_tables, variant_tables
from plimsoll_planner.search.answer import solve
from tests.support.chains import SMALL, Activation, Layer, chain_profile
from tests.support.drawing import draws
from tests.support.questions import a_device

DIFFERENT = st.builds(
    Layer,
    parameters=SMALL,
    boundary=st.integers(0, 4),
    kept=st.builds(
        Activation,
        saved=st.integers(5, 15),
        keeps_input=st.booleans(),
        forward=SMALL,
        backward=st.integers(0, 19),
    ),
    again=st.builds(
        Activation,
        saved=st.integers(0, 3),
        keeps_input=st.booleans(),
        forward=SMALL,
        backward=st.integers(0, 19),
    ),
    forward_s=st.integers(1, 4).map(float),
    backward_s=st.integers(1, 6).map(float),
    recompute_s=st.integers(1, 9).map(float),
)
"""Layers with much to gain from recomputing, at different prices."""


@st.composite
def questions(draw: st.DrawFn) -> Problem:
    """Draw a chain of different layers on devices that hold about half of it."""
    layers = draw(st.lists(DIFFERENT, min_size=4, max_size=7))
    return Problem(
        profile=chain_profile(layers, device_kind=DeviceKind.EMULATED),
        offers=(a_device(draw(st.integers(30, 150))),),
        engine=PLIMSOLL,
        global_batch_size=4,
        num_steps=100,
        limits=Limits(max_gpus=draw(st.integers(1, 3))),
        objective=Objective(
            goal=draw(
                st.sampled_from(
                    [Goal.MAXIMIZE_THROUGHPUT, Goal.MINIMIZE_COST, Goal.MINIMIZE_MEMORY]
                )
            ),
            min_samples_per_s=draw(st.sampled_from([None, 0.01, 0.05])),
            rate_floor=0.0,
        ),
    )


def reached(answer: Solution, goal: Goal) -> float:
    """Result of a plan in the measure of the goal; less is better."""
    plan = answer.plan
    if goal is Goal.MINIMIZE_MEMORY:
        return max(peak.device.upper_bytes for s in plan.stages for peak in s.peaks)
    price = plan.price_per_hour if goal is Goal.MINIMIZE_COST else 1
    assert plan.step_time is not None
    return plan.step_time.expected_s * float(price or 0)


@settings(max_examples=draws(40))
@given(questions())
def test_a_gap_covers_what_pruning_hides(problem: Problem) -> None:
    """With two options a run, no plan of all options is better by more than the gap."""
    exact = solve(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variant_tables, "build_options", partial(build_options, most=2))
        answer = solve(problem)
    if not isinstance(answer, Solution):
        return
    assert isinstance(exact, Solution)
    assert not exact.certificate.pruned
    goal = problem.objective.goal
    best, found = reached(exact, goal), reached(answer, goal)
    assert best >= found * (1 - answer.gap) * (1 - 1e-9)
    if answer.termination is Termination.OPTIMAL:
        assert best > found * (1 - LEAST_GAP)


@settings(max_examples=draws(40))
@given(questions())
def test_a_gap_covers_cuts_within_groups(problem: Problem) -> None:
    """With three groups of layers, no plan of all cuts is better by more than that."""
    exact = solve(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_tables, "MOST_GROUPS", 3)
        answer = solve(problem)
    if isinstance(answer, Solution):
        assert isinstance(exact, Solution)
        assert answer.certificate.pruned
        goal = problem.objective.goal
        best, found = reached(exact, goal), reached(answer, goal)
        assert best >= found * (1 - answer.gap) * (1 - 1e-9)
