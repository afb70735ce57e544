"""Which plan a report is about."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

from plimsoll_operator.store.attempts import StoredAttempt
from tests.support.builders import a_plan
from tests.support.questions import a_question, solved
from tests.support.reports import a_record, told_by


def test_the_plan_is_the_one_that_was_observed() -> None:
    """Else the newest of record, else the answer's, else none."""
    problem = a_question(700)
    first, second = a_plan(), a_plan(revision=2)
    attempts = (
        StoredAttempt(number=1, plan=first),
        StoredAttempt(number=2, plan=second),
    )
    told = told_by(first, 0, 1, attempt=1)
    assert a_record(problem, attempts=attempts, observations=(told,)).plan == first
    assert a_record(problem, attempts=attempts).plan == second
    assert a_record(problem).plan == solved(problem).plan
    assert a_record(a_question(1)).plan is None
