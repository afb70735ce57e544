"""The plan among its alternatives."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.report.choices import MOST_ROWS, choices_view
from plimsoll_planner.records.objective import Objective
from tests.support.questions import a_question, solved

STEPS = a_question(700, num_steps=10)


def test_the_plan_is_the_first_line_and_the_filled_mark() -> None:
    """Drawn last, so that nothing covers it; a mark says its devices."""
    answer = solved(a_question(700))
    assert answer.alternatives
    view = choices_view(answer, a_question(700))
    assert view is not None
    assert view.headings[0] == "Devices"
    assert [row[0] for row in view.rows] == [
        str(plan.num_gpus) for plan in (answer.plan, *answer.alternatives)
    ]
    chosen = [mark.is_chosen for mark in view.chart.marks]
    assert chosen == [False] * len(answer.alternatives) + [True]
    assert view.chart.marks[-1].text == str(answer.plan.num_gpus)


def test_faster_is_further_right_and_slimmer_is_lower() -> None:
    """Samples/s to the right, the peak upwards."""
    answer = solved(a_question(700))
    view = choices_view(answer, None)
    assert view is not None
    plans = [answer.plan, *answer.alternatives]
    marks = sorted(view.chart.marks, key=lambda mark: (mark.x, mark.y))
    by_rate = sorted(plans, key=lambda plan: plan.samples_per_s or 0)
    heights = [plan.peak_bytes or 0 for plan in by_rate]
    assert len({plan.samples_per_s for plan in plans}) == len(plans)
    by_height = sorted(range(len(plans)), key=lambda i: heights[i])
    assert [-marks[i].y for i in by_height] == sorted(-mark.y for mark in marks)


def test_money_is_told_where_there_is_a_price() -> None:
    """A column that nothing is known of is left out."""
    answer = solved(a_question(700))
    priced, unpriced = choices_view(answer, STEPS), choices_view(answer, None)
    assert priced is not None
    assert unpriced is not None
    assert "Cost" in priced.headings
    assert "Cost" not in unpriced.headings


def test_nothing_else_is_no_section() -> None:
    """An answer without alternatives has no view."""
    assert choices_view(replace(solved(a_question(700)), alternatives=()), None) is None


def test_a_long_front_is_cut_and_says_so() -> None:
    """The rows are limited, the marks are not."""
    found = solved(a_question(700))
    others = (replace(found.plan, revision=n + 2) for n in range(MOST_ROWS + 2))
    answer = replace(found, alternatives=tuple(others))
    view = choices_view(answer, None)
    assert view is not None
    assert len(view.rows) == MOST_ROWS
    assert view.num_left_out == 3
    assert len(view.chart.marks) == MOST_ROWS + 3


def test_plans_that_are_too_slow_say_so() -> None:
    """One GPU misses a deadline that three meet, and is no plan that could be had."""
    problem = a_question(5000, num_steps=10, objective=Objective(deadline_s=1000.0))
    answer = solved(problem)
    view = choices_view(answer, problem)
    assert view is not None
    place = view.headings.index("Note")
    for plan, row in zip((answer.plan, *answer.alternatives), view.rows, strict=True):
        assert plan.step_time is not None
        is_late = 10 * plan.step_time.expected_s > 1000.0
        assert row[place] == ("too slow" if is_late else "-")
    assert view.rows[0][place] == "-"
