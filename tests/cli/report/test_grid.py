"""Other counts and micro-batches in the report."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from html import unescape
from itertools import combinations, pairwise

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.output.grid_table import CellWords
from plimsoll_cli.report.grid import Axis, CellView, GridView, grid_view
from plimsoll_cli.report.page import report_html
from plimsoll_planner.records.grid import GridCell
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.grid import grid_of
from tests.support.grids import a_grid_question, an_answer, with_whole_grid
from tests.support.questions import a_device, a_question, refused
from tests.support.reports import a_record


def viewed(answer: Solution, problem: Problem) -> GridView:
    """View a grid, and insist on there being one."""
    view = grid_view(answer, problem)
    assert view is not None
    return view


def cells_of(view: GridView) -> list[CellView]:
    """List all cells."""
    rows = [row for kind in view.kinds for row in kind.rows]
    return [cell for row in rows for cell in row.cells if cell is not None]


def two_kinds() -> Problem:
    """Ask about a small cheap machine and a large dear one."""
    return a_question(
        offers=(
            a_device(640, name="small", price_per_node_hour=Decimal(3)),
            a_device(900, name="large", price_per_node_hour=Decimal(8)),
        ),
        limits=Limits(max_gpus=8),
    )


def numbers(words: CellWords, *, is_priced: bool) -> tuple[float, ...]:
    """Numbers that a cell is compared by: less is better."""
    cell, plan = words.cell, words.cell.plan
    assert plan is not None
    effort = float(cell.price_per_hour or 0) if is_priced else cell.num_gpus
    return effort, -plan.samples_per_s


@pytest.mark.parametrize("is_priced", [False, True], ids=["one kind", "two kinds"])
def test_the_front_is_what_no_other_cell_beats(is_priced: bool) -> None:
    """In devices, or in money where devices are of several kinds; and in speed."""
    problem = two_kinds() if is_priced else a_grid_question()
    view = viewed(with_whole_grid(problem), problem)
    fitting = [one for one in cells_of(view) if one.words.cell.plan]
    assert 1 < sum(one.is_front for one in fitting) < len(fitting)
    assert view.compared == (
        "at as low a price" if is_priced else "with as few devices"
    )
    for one in fitting:
        mine = numbers(one.words, is_priced=is_priced)
        others = [numbers(other.words, is_priced=is_priced) for other in fitting]
        is_beaten = any(
            other != mine and all(a <= b for a, b in zip(other, mine, strict=True))
            for other in others
        )
        assert one.is_front is (not is_beaten)


def test_charts_have_a_mark_for_each_cell_that_fits() -> None:
    """The front says its devices; the plan is drawn last; the line never falls."""
    problem = a_grid_question()
    view = viewed(an_answer(), problem)
    fitting = [one for one in cells_of(view) if one.words.cell.plan]
    front = [one for one in fitting if one.is_front]
    for chart in view.charts:
        assert len(chart.marks) == len(fitting)
        assert [mark.is_chosen for mark in chart.marks] == [
            *[False] * (len(fitting) - 1),
            True,
        ]
        assert sum(mark.is_front for mark in chart.marks) == len(front)
        rings = [mark for mark in chart.marks if mark.text]
        assert rings[-1].is_chosen
        assert not any(one.overlaps(other) for one, other in combinations(rings, 2))
    by_devices, by_peak = view.charts
    assert by_peak.line == ""
    corners = [tuple(map(float, one.split(","))) for one in by_devices.line.split()]
    # From the fastest point on: to the left, and down.
    assert all(x >= y for (x, _), (y, _) in pairwise(corners))
    assert all(low <= high for (_, low), (_, high) in pairwise(corners))
    assert len({mark.x for mark in by_devices.marks}) > 2


def test_numbers_far_apart_are_drawn_by_their_logarithm() -> None:
    """And ticks are numbers all the same."""
    assert not Axis.of([1, 8]).is_log
    assert not Axis.of([0, 100]).is_log
    axis = Axis.of([0.5, 64])
    assert axis.place(8) == 3
    assert axis.texts([(1.0, "3"), (2.0, "3.5"), (3.0, "-1")]) == (
        (1.0, "8"),
        (3.0, "0.5"),
    )


def test_a_page_has_each_cell_with_a_word_a_sign_and_a_title() -> None:
    """So that neither colour nor a pointer is needed; the plan says that it is it."""
    answer, problem = an_answer(), a_grid_question()
    page = unescape(report_html(a_record(problem, answer=answer)))
    assert answer.grid is not None
    section = page.partition('<h2 id="grid">')[2].partition("</section>")[0]
    signs = {"fits": "✓ fits", "fails": "✗ fails", "undecided": "? undecided"}
    for verdict, sign in signs.items():
        mine = [one for one in answer.grid.cells if one.verdict == verdict]
        assert section.count(f'class="v-{verdict}') == len(mine)
        assert section.count(f'<b class="verdict">{sign}</b>') == len(mine)
    assert section.count("<em>this plan</em>") == 1
    assert (
        'title="3 devices, micro-batch 1: fits; 840 B; 0.07272 samples/s; '
        "80.00 USD/h; 3 stages x 1 replica; micro-batch 1 x 8;" in section
    )


def test_cells_without_time_say_so() -> None:
    """By a word in each of them, and a sentence."""
    answer, problem = an_answer(), a_grid_question()
    grid = grid_of(problem, answer, limit_s=0.0)
    assert grid is not None
    page = report_html(a_record(problem, answer=replace(answer, grid=grid)))
    assert page.count("not searched</b>") == len(grid.cells) - 1
    assert f"{len(grid.cells) - 1} not searched: " in page


def test_a_price_that_a_row_shares_stands_at_its_head() -> None:
    """Once, so that a cell is a line on a phone; in each cell if they differ."""
    answer, problem = an_answer(), a_grid_question()
    assert answer.grid is not None
    (kind,) = viewed(answer, problem).kinds
    assert kind.rows[2].price == "80.00 USD/h"
    dear = [
        replace(one, price_per_hour=Decimal(90)) if one.micro_batch == 1 else one
        for one in answer.grid.cells
        if one.plan is not None
    ]
    grid = replace(answer.grid, cells=tuple(dear))
    (kind,) = viewed(replace(answer, grid=grid), problem).kinds
    assert kind.rows[0].price == ""
    page = report_html(a_record(problem, answer=replace(answer, grid=grid)))
    assert "<span>90.00 USD/h</span>" in page


def test_what_is_said_of_charts_stands_beside_charts_alone() -> None:
    """A refusal has neither rings nor dots; a cell says why the engine refuses it."""
    problem = a_question(200, limits=Limits(max_gpus=3))
    answer = refused(problem)
    answer = replace(answer, grid=grid_of(problem, answer))
    page = report_html(a_record(problem, answer=answer))
    assert "In the charts" not in page
    assert "◆" not in page
    assert "fewer micro-batches than stages" in page
    shown = report_html(a_record(a_grid_question(), answer=an_answer()))
    assert "In the charts" in shown


def test_a_question_without_a_plan_has_a_grid_too() -> None:
    """Its cells fail, and there is nothing to draw."""
    problem = a_question(200, limits=Limits(max_gpus=3))
    answer = refused(problem)
    answer = replace(answer, grid=grid_of(problem, answer))
    view = grid_view(answer, problem)
    assert view is not None
    assert view.charts == ()
    assert {one.tone for one in cells_of(view)} == {"fails"}
    assert "What if" in report_html(a_record(problem, answer=answer))


def test_micro_batches_that_a_row_lacks_are_empty_cells() -> None:
    """Columns stay below their headings."""
    answer, problem = an_answer(), a_grid_question()
    assert answer.grid is not None
    cells = [one for one in answer.grid.cells if one.micro_batch != 2]
    cells += [
        GridCell(offer=0, num_gpus=16, micro_batch=2, verdict=None),
    ]
    grid = replace(answer.grid, cells=tuple(cells))
    (kind,) = viewed(replace(answer, grid=grid), problem).kinds
    assert kind.micro_batches == (1, 2, 4, 8)
    assert [cell is None for cell in kind.rows[0].cells] == [False, True, False, False]
    assert [cell is None for cell in kind.rows[-1].cells] == [True, False, True, True]


def test_nothing_asked_for_is_no_section() -> None:
    """Nor is numpy asked for it."""
    answer = replace(an_answer(), grid=None)
    assert grid_view(answer, a_grid_question()) is None
    assert "What if" not in report_html(a_record(a_grid_question(), answer=answer))
