"""Which plan a report is about."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_operator.store.attempts import StoredAttempt
from tests.support.builders import a_plan
from tests.support.questions import a_question, solved
from tests.support.reports import a_record, told_by


def test_the_plan_is_the_latest() -> None:
    """The newest of record, though an older one was observed; else the answer's.

    So it is also where the answer is newer than all attempts; an answer that none fits
    leaves no plan.
    """
    problem = a_question(700)
    first, second = a_plan(), a_plan(revision=2)
    attempts = (
        StoredAttempt(number=1, plan=first),
        StoredAttempt(number=2, plan=second),
    )
    observation = told_by(first, 0, 1, attempt=1)
    record = a_record(problem, attempts=attempts, observations=(observation,))
    assert record.plan == second
    assert a_record(problem).plan == solved(problem).plan
    assert replace(record, is_planned_anew=True).plan == solved(problem).plan
    assert a_record(a_question(1)).plan is None
