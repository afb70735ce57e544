"""Questions whose layers carry values past others, against all plans there are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.answer import solve
from tests.planner.search.test_verdicts import check, judge_all
from tests.support.brute_force import heavier_than_needed, wrongly_failed
from tests.support.carried import Value, carried_columns, carrying
from tests.support.chains import Activation, Layer, chain_profile
from tests.support.drawing import draws
from tests.support.questions import a_device, a_question, solved
from tests.support.random_questions import Asked, asked, mixed

SEEDS = st.integers(0, 10**6)
TWO_STAGES = Limits(max_gpus=2, pipeline_degrees=(2,), data_degrees=(1,))


def drawn(seed: int, *, is_mixed: bool) -> tuple[Asked, random.Random]:
    """Draw a question with carried values, and dice for more."""
    dice = random.Random(f"carried {seed}")  # noqa: S311 - no secret
    return carrying(mixed(seed) if is_mixed else asked(seed), dice), dice


def with_floor(question: Asked, dice: random.Random) -> Problem:
    """The question with an absolute floor."""
    floor = dice.uniform(0.02, 0.3)
    objective = replace(question.objective, min_samples_per_s=floor)
    return replace(question, objective=objective).problem()


@pytest.mark.slow
@settings(max_examples=draws(20))
@given(SEEDS)
def test_tuples_with_carried_values_are_judged_as_by_enumeration(seed: int) -> None:
    """The same verdict on every tuple, with the least peak to the byte."""
    problem = with_floor(*drawn(seed, is_mixed=False))
    for mesh, decision in judge_all(problem).items():
        check(problem, mesh, decision)


@pytest.mark.slow
@settings(max_examples=draws(20))
@given(SEEDS)
def test_no_proof_and_no_promise_breaks_with_carried_values(seed: int) -> None:
    """No count that is proven to fail fits, and no plan as fast is lighter."""
    question, dice = drawn(seed, is_mixed=True)
    problem = question.problem()
    answer = solve(problem)
    assert list(wrongly_failed(question, answer, dice)) == []
    if isinstance(answer, Solution) and not (answer.memory_gap or answer.rate_gap):
        assert list(heavier_than_needed(problem, answer)) == []


def cuts_of(problem: Problem) -> list[int]:
    """First layers of the stages of the plan."""
    stages = solved(problem).plan.stages
    return [stage.chunks[0].first_layer for stage in stages]


def test_a_cut_is_where_little_is_carried() -> None:
    """Four equal layers are cut in the middle, unless much crosses the middle."""
    block = Layer(
        parameters=40,
        gradients=40,
        boundary=4,
        kept=Activation(saved=10, keeps_input=True, forward=20, backward=30),
        again=Activation(keeps_input=True, forward=20, backward=30),
    )
    asked = a_question(450, limits=TWO_STAGES, global_batch_size=2)
    plain = chain_profile([block] * 4, device_kind=DeviceKind.EMULATED)
    assert cuts_of(replace(asked, profile=plain)) == [0, 2]
    across = Value(giver=1, takers=(2,), num_bytes=100)
    carrying_one = replace(plain, carried=carried_columns([across]))
    assert 2 not in cuts_of(replace(asked, profile=carrying_one))


def test_links_carry_values_and_their_gradients() -> None:
    """Both ways, at 4 bytes a second: a message of 4 bytes becomes one of 24."""
    link = Link(bandwidth_bytes_per_s=4.0)
    blocks = [Layer(parameters=100, boundary=4)] * 2
    plain = chain_profile(blocks, device_kind=DeviceKind.EMULATED)
    value = Value(giver=0, takers=(1,), num_bytes=20)
    asked = a_question(
        profile=plain,
        offers=(a_device(190, link_in_node=link),),
        limits=TWO_STAGES,
        global_batch_size=2,
    )
    profiles = plain, replace(plain, carried=carried_columns([value]))
    plans = [solved(replace(asked, profile=one)).plan for one in profiles]
    steps = [one.step_time.expected_s for one in plans if one.step_time]
    assert steps == [pytest.approx(steps[0]), pytest.approx(steps[0] + 2 * 5)]
