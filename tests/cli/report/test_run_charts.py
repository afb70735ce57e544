"""The course of a training, from the reports of its ranks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.report.run_charts import latest_steps, loss_chart, step_chart
from tests.support.reports import a_record, a_run, told_by


def test_a_loss_goes_from_first_to_last() -> None:
    """Both are marked, the last in words; values that are not finite are left out."""
    losses = ((1, 4.0), (2, math.nan), (3, math.inf), (4, 1.0))
    chart = loss_chart(a_record(losses=losses))
    assert chart is not None
    assert [mark.text for mark in chart.marks] == ["", "1"]
    assert chart.spoken == (
        "Loss by step, from 4 at step 1 to 1 at step 4; 2 steps without a finite loss "
        "are left out"
    )


@pytest.mark.parametrize("losses", [(), ((1, 4.0),), ((1, math.nan), (2, math.nan))])
def test_less_than_two_losses_are_no_line(
    losses: tuple[tuple[int, float], ...],
) -> None:
    """Nothing is drawn."""
    assert loss_chart(a_record(losses=losses)) is None


def test_steps_that_all_ranks_tell_have_the_seconds_of_the_slowest() -> None:
    """Rank 1 is a step behind, and keeps one step less."""
    plan = a_run().plan
    assert plan is not None
    ahead = told_by(plan, 0, 1, num_steps=5, step_s=(3.0, 4.0, 5.0))
    behind = told_by(plan, 1, 1, num_steps=4, step_s=(2.5, 6.0))
    silent = told_by(plan, 2, 1, num_steps=4, step_s=())
    assert latest_steps((ahead, behind, silent)) == [(3.0, 3.0), (4.0, 6.0)]
    assert latest_steps((silent,)) == []


def test_step_times_stand_beside_the_prediction() -> None:
    """A line, and the band from the lower to the upper bound around the expected."""
    record = a_run()
    plan = record.plan
    assert plan is not None
    chart = step_chart(record, plan)
    assert chart is not None
    assert chart.band is not None
    assert chart.rule is not None
    top, height = chart.band
    assert top <= chart.rule[0] <= top + height
    assert len(chart.line.split()) == 3
    assert "median 41 s; predicted" in chart.spoken
    untimed = step_chart(record, replace(plan, step_time=None))
    assert untimed is not None
    assert (untimed.band, untimed.rule) == (None, None)


def test_one_step_is_no_line() -> None:
    """Nothing is drawn before the second."""
    record = a_run()
    plan = record.plan
    assert plan is not None
    early = tuple(replace(o, num_steps=1, step_s=(1.0,)) for o in record.observations)
    assert step_chart(replace(record, observations=early), plan) is None
