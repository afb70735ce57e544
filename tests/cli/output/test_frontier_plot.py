"""Memory against speed as a picture of letters."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.output.frontier_plot import HEIGHT, LEAST_WIDTH, curve_picture, legend
from plimsoll_cli.output.frontier_table import Curve
from tests.support.curves import a_curve


def drawn(curve: Curve, columns: int) -> list[str]:
    """Draw the rows between the axes, from the top on, without their ticks."""
    lines = [line.plain for line in curve_picture(curve, columns)]
    assert all(len(line) <= columns and line == line.rstrip() for line in lines)
    return [line.partition("|")[2] for line in lines if "|" in line]


@pytest.mark.parametrize("columns", [200, 80, 40])
def test_every_point_has_its_mark_where_its_numbers_are(columns: int) -> None:
    """Lighter is lower, slower is further left, and the capacity is on top of all."""
    curve = a_curve()
    rows = drawn(curve, columns)
    assert len(rows) == HEIGHT
    assert rows[0] == "=" * len(rows[0])
    assert "".join(rows).count("@") == 1
    marks = [
        (column, row)
        for row, line in enumerate(rows)
        for column, cell in reversed(list(enumerate(line)))
        if cell in "o@"
    ]
    assert marks == sorted(marks, key=lambda mark: -mark[0])
    if columns > 40:  # else two may share a place
        assert len(marks) == len(curve.points)
        assert rows[marks[curve.place][1]][marks[curve.place][0]] == "@"


def test_what_is_found_reaches_from_the_fastest_to_the_left_edge() -> None:
    """In every column up to the fastest point something is drawn below the capacity."""
    rows = drawn(a_curve(), 80)
    fastest = max(row.rfind("o") for row in rows)
    below = [line.ljust(80) for line in rows[1:]]
    for column in range(fastest + 1):
        assert any(line[column] in ".o@" for line in below)
    assert all(
        line[column] == " " for line in below for column in range(fastest + 1, 80)
    )


def test_there_is_no_picture_of_one_point_or_without_room() -> None:
    """The table says it."""
    assert curve_picture(a_curve(700), 80) == []
    assert curve_picture(a_curve(), LEAST_WIDTH) == []


def test_a_far_capacity_is_in_the_legend_alone() -> None:
    """So that the curve is not pressed flat."""
    curve = a_curve()
    far = replace(curve, frontier=replace(curve.frontier, capacity_bytes=5000))
    assert "= memory of a device, 900 B" in legend(curve)
    assert not any("=" in line for line in drawn(far, 80))
    assert legend(far).endswith("memory of a device, 4.88 KiB, is above")
