"""Memory against speed in the report."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.output.frontier_table import curve_of
from plimsoll_cli.report.charts import HEIGHT
from plimsoll_cli.report.frontier import chart_of, frontier_view
from tests.support.curves import a_curve, an_answer


def test_the_plan_is_set_off_in_chart_and_table() -> None:
    """Drawn last, so that nothing covers it; the capacity is above all marks."""
    view, curve = frontier_view(an_answer()), a_curve()
    assert view is not None
    assert view.rows[view.this][view.headings.index("Peak")] == "840 B"
    assert [mark.is_chosen for mark in view.chart.marks] == [
        *[False] * (len(curve.points) - 1),
        True,
    ]
    assert view.chart.rule is not None
    height, text = view.chart.rule
    assert text == "load line"
    assert all(height < mark.y < HEIGHT for mark in view.chart.marks)
    assert view.capacity == "900 B"
    assert not view.is_far


def test_the_line_goes_down_to_the_left_in_steps() -> None:
    """Each point stands for all lower speeds, down to the next one."""
    chart = chart_of(a_curve())
    corners = [tuple(map(float, one.split(","))) for one in chart.line.split()]
    marks = {(mark.x, mark.y) for mark in chart.marks}
    assert marks <= set(corners)
    assert corners == sorted(corners, key=lambda corner: (-corner[0], corner[1]))


def test_an_open_bound_is_a_line_below_its_mark() -> None:
    """One that is proven has none, nor one that is not known."""
    curve = a_curve()
    assert chart_of(curve).whiskers == ""
    points = list(curve.frontier.points)
    points[0] = replace(points[0], least_peak_bytes=points[0].peak_bytes // 2)
    points[1] = replace(points[1], least_peak_bytes=0)
    answer = an_answer()
    frontier = replace(curve.frontier, points=tuple(points))
    drawn = chart_of(curve_of(frontier, answer.plan))
    assert drawn.whiskers.count("M") == 1
    view = frontier_view(replace(answer, frontier=frontier))
    assert view is not None
    assert view.is_open


def test_a_plan_that_was_replayed_is_the_same_point() -> None:
    """Other peaks of the same plan do not make two rows of it."""
    answer = an_answer()
    assert answer.frontier is not None
    stages = [replace(one, peaks=one.peaks[:1]) for one in answer.plan.stages]
    replayed = replace(answer.plan, stages=tuple(stages))
    curve = curve_of(answer.frontier, replayed)
    assert curve.points == answer.frontier.points
    assert curve.place == a_curve().place


def test_nothing_asked_for_is_no_section() -> None:
    """Nor is a single point."""
    answer = an_answer()
    assert frontier_view(replace(answer, frontier=None)) is None
    assert frontier_view(an_answer(700)) is None


def test_a_far_capacity_is_not_drawn() -> None:
    """So that the curve is not pressed flat."""
    answer = an_answer()
    assert answer.frontier is not None
    frontier = replace(answer.frontier, capacity_bytes=5000)
    view = frontier_view(replace(answer, frontier=frontier))
    assert view is not None
    assert view.is_far
    assert view.chart.rule is None
