"""Promises of an answer, against all plans of small random questions.

make bench-promises      asks thousands of them
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution, Termination
from plimsoll_planner.search.answer import solve
from plimsoll_planner.text.explain import explain
from tests.support.brute_force import (
    heavier_than_needed,
    heavier_with_freedom,
    wrongly_failed,
)
from tests.support.chains import Activation, Layer, chain_profile
from tests.support.drawing import draws
from tests.support.questions import a_question
from tests.support.random_questions import asked, mixed

SEEDS = st.integers(0, 10**6)


@pytest.mark.slow
@settings(max_examples=draws(40))
@given(SEEDS)
def test_no_count_that_is_proven_to_fail_can_be_the_answer(seed: int) -> None:
    """Relative and absolute floors, for seconds drawn from inside their intervals.

    Lower seconds were compared with lower ones, as if all errors were one factor: of
    250 chains, 4 answers marked as proven had a smaller optimum inside the intervals.
    """
    question = mixed(seed)
    answer = solve(question.problem())
    wrong = wrongly_failed(question, answer, random.Random(seed))  # noqa: S311
    assert list(wrong) == []


@pytest.mark.slow
@settings(max_examples=draws(40))
@given(SEEDS)
def test_no_plan_as_fast_needs_less_memory(seed: int) -> None:
    """The least peak of the plans within the tolerance, unless the answer says not so.

    The plan was heavier in 17 of 3,004 questions: a stage took its own least peak where
    a quicker choice within the largest one would do, and the fastest plan of a tuple
    was given out where the walk of the slim one was a little too long.
    """
    problem = mixed(seed).problem()
    answer = solve(problem)
    if isinstance(answer, Solution) and not (answer.memory_gap or answer.rate_gap):
        assert list(heavier_than_needed(problem, answer)) == []


def test_nothing_is_open_for_the_rounding_of_a_rate() -> None:
    """The step of the best plan, and not the one that its rate is turned back into."""
    answers = [solve(asked(seed).problem()) for seed in range(60)]
    found = [answer for answer in answers if isinstance(answer, Solution)]
    assert len(found) > 20
    assert {answer.rate_gap for answer in found} == {0.0}


@pytest.mark.slow
@settings(max_examples=draws(20))
@given(SEEDS)
def test_more_freedom_is_never_heavier_at_the_same_speed(seed: int) -> None:
    """Free cuts, free recompute and both, against uniform stages that keep everything.

    Unless a plan is not proven the least: with several choices of sharding the step of
    given cuts may be shorter with another one than the best alone. With recompute
    allowed a plan was heavier than without: 14.6 % below uniform stages where cuts
    alone were 28.4 % below them.
    """
    heavier = heavier_with_freedom(mixed(seed).problem())
    assert [text for text, is_open in heavier if not is_open] == []


@pytest.mark.parametrize(
    ("time_error", "is_proof"), [(0.0, True), (0.01, True), (0.1, False)]
)
def test_too_slow_at_equal_relative_error_is_no_proof(
    time_error: float, is_proof: bool
) -> None:
    """One device is 5 % too slow at the expected seconds; two are the answer.

    With an error of 1 % that is proven. With 10 % it would be so only if one factor
    were the error of all layers: the answer says that, and does not say optimal.
    """
    answer = solve(recomputing_question(time_error))
    assert isinstance(answer, Solution)
    one = answer.certificate.counts[0]
    assert answer.plan.num_gpus == 2
    assert answer.certificate.is_proof is is_proof
    assert one.verdict is (Verdict.FAILS if is_proof else Verdict.UNDECIDED)
    assert one.is_slow_at_equal_error is not is_proof
    assert (Rule.RATE_AT_EQUAL_ERROR in one.decisions.rule) is not is_proof
    ending = Termination.OPTIMAL if is_proof else Termination.WITHIN_GAP
    assert answer.termination is ending
    text = "\n".join(explain(answer))
    assert ("1 (too slow at equal relative error; not proven" in text) is not is_proof


def recomputing_question(time_error: float) -> Problem:
    """Ask for four layers that one device can train only if most of them recompute."""
    numbers = ((14, 9, 2.0), (13, 3, 1.501), (9, 9, 2.002), (12, 3, 1.503))
    layers = [
        Layer(
            parameters=parameters,
            boundary=1,
            kept=Activation(saved=saved, keeps_input=True, forward=3, backward=4),
            again=Activation(keeps_input=True, forward=2, backward=6),
            recompute_s=recompute_s,
        )
        for parameters, saved, recompute_s in numbers
    ]
    return a_question(
        63,
        profile=chain_profile(
            layers, time_error=time_error, device_kind=DeviceKind.EMULATED
        ),
        limits=Limits(max_gpus=3),
        objective=Objective(rate_floor=0.948),
        global_batch_size=8,
    )
