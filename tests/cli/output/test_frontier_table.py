"""Memory against speed in rows and sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.output.frontier_table import (
    PROVEN,
    curve_lines,
    curve_of,
    curve_rows,
    rate_text,
)
from plimsoll_planner.records.engine import Sharding
from tests.support.curves import a_curve, an_answer


def test_a_row_is_a_point_and_the_plan_is_marked() -> None:
    """The fastest first; nothing is said of sharding if none is sharded."""
    curve = a_curve()
    rows = curve_rows(curve)
    assert [row["PEAK"] for row in rows] == [
        f"{point.peak_bytes} B" for point in curve.points
    ]
    assert [row["PLAN"] for row in rows].count("@ this") == 1
    assert rows[curve.place]["PLAN"] == "@ this"
    assert rows[curve.place]["PEAK"] == f"{curve.plan.peak_bytes} B"
    assert rows[curve.place]["RECOMPUTE"].endswith(" of 10")
    assert {row["AT LEAST"] for row in rows} == {PROVEN}
    assert all("SHARDED" not in row for row in rows)


def test_a_bound_below_the_peak_is_shown() -> None:
    """A dash if nothing is known; levels of sharding if there are any."""
    curve = a_curve()
    shardings = (Sharding.OPTIMIZER, *curve.points[1].shardings[1:])
    points = (
        replace(curve.points[0], least_peak_bytes=800),
        replace(curve.points[1], least_peak_bytes=0, shardings=shardings),
        *curve.points[2:],
    )
    rows = curve_rows(replace(curve, points=points))
    assert [row["AT LEAST"] for row in rows[:3]] == ["800 B", "-", PROVEN]
    assert [row["SHARDED"] for row in rows[:3]] == ["none", "optimizer, none", "none"]


def test_a_plan_beside_the_curve_has_its_row() -> None:
    """One that a better one beats is among the points all the same, by its speed."""
    answer = an_answer()
    assert answer.frontier is not None
    others = [
        point
        for point in answer.frontier.points
        if point.peak_bytes != answer.plan.peak_bytes
    ]
    frontier = replace(answer.frontier, points=tuple(others))
    curve = curve_of(frontier, answer.plan)
    assert curve.points[curve.place].step_time == answer.plan.step_time
    rates = [point.samples_per_s for point in curve.points]
    assert rates == sorted(rates, reverse=True)
    assert curve_rows(curve)[curve.place]["AT LEAST"] == "-"


def test_the_sentences_say_both_ends_and_how_to_go_on() -> None:
    """The option has the count, and rates that are shown can be reached."""
    first, proof, advice = curve_lines(a_curve())
    assert first.startswith("3 devices: from 888 B at 0.07407 samples/s to 696 B at ")
    assert "21.6% less memory and 57.8% slower" in first
    assert PROVEN in proof
    assert "--gpus 3 " in advice
    assert rate_text(0.123499) == "0.1234"
    assert rate_text(98765.0) == "98,760"


def test_a_single_point_is_one_sentence() -> None:
    """Nothing is lighter, and there is no other end."""
    (line,) = curve_lines(a_curve(700))
    assert line == "3 devices: nothing lighter was found at any lower speed"


def test_the_least_at_a_rate_is_that_of_the_slowest_point_as_fast() -> None:
    """Faster than all is none."""
    curve = a_curve()
    rates = [point.samples_per_s for point in curve.points]
    assert curve.least_at(rates[0] * 1.01) is None
    assert curve.least_at(rates[1]) == curve.points[1].peak_bytes
    assert curve.least_at(rates[1] * 1.001) == curve.points[0].peak_bytes
    assert curve.least_at(0.0) == curve.points[-1].peak_bytes
