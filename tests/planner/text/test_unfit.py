"""Plans that a person fixed and that no search would choose, in a few words."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.solution import Solution, Termination
from plimsoll_planner.text.explain import ending_text
from plimsoll_planner.text.unfit import unfit_text
from tests.support.builders import a_certificate, a_count, a_plan, a_solution
from tests.support.questions import a_question, solved


def an_open_one(plan_bytes_part: float, floor_samples_per_s: float) -> Solution:
    """Build a fixed plan of four GPUs of which nothing is proven."""
    plan = a_plan()
    last = a_count(4, Verdict.UNDECIDED, floor_samples_per_s=floor_samples_per_s)
    certificate = a_certificate(
        counts=(*map(a_count, (1, 2, 3)), last), fewest_at_any_speed=None
    )
    limits = replace(certificate.space.limits, headroom=1 - plan_bytes_part)
    space = replace(certificate.space, limits=limits)
    return a_solution(
        termination=Termination.FIXED,
        gap=1.0,
        plan=plan,
        certificate=replace(certificate, space=space),
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (an_open_one(0.99, 1e6), "not proven to be fast enough"),
        (an_open_one(0.99, 0.0), "not proven to fit"),
        (an_open_one(1e-6, 1e6), "not proven to fit"),
    ],
)
def test_what_is_open_is_not_called_a_failure(answer: Solution, words: str) -> None:
    """Speed only of a plan that fits and is below the floor as it is expected."""
    assert not answer.is_proven_unfit
    assert unfit_text(answer) == words


@pytest.mark.parametrize(
    ("memory_bytes", "least_rate", "words", "warning"),
    [
        (400, None, "does not fit", "does not fit: rank 1, backward"),
        (5000, 9.0, "too slow for what was asked", "proven not to reach the rate"),
    ],
)
def test_what_is_proven_to_fail_is_said_to(
    memory_bytes: int, least_rate: float | None, words: str, warning: str
) -> None:
    """By memory, and by a rate that was asked for; the warning says the same."""
    problem = a_question(
        memory_bytes,
        override=Override(num_gpus=2),
        objective=Objective(min_samples_per_s=least_rate),
    )
    answer = solved(problem)
    assert answer.is_proven_unfit
    assert ending_text(answer) == f"fixed by hand: {words}"
    assert warning in answer.warnings[0]
