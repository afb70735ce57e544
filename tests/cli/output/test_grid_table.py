"""Other counts and micro-batches in words."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.output.grid_table import (
    CellWords,
    cell_text,
    grid_lines,
    kind_less_important,
    kind_table,
    kind_title,
    kinds_of,
)
from plimsoll_cli.output.scales import seconds_text
from plimsoll_planner.records.certificate import Binding
from plimsoll_planner.records.grid import GridCell
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.units import S_PER_HOUR
from tests.support.grids import a_grid_question, an_answer, with_whole_grid


def words_of(answer: Solution) -> dict[tuple[int, int, int], CellWords]:
    """Find all cells by offer, devices and micro-batch."""
    kinds = kinds_of(answer, a_grid_question())
    every = [one for kind in kinds for row in kind.rows.values() for one in row]
    return {
        (one.cell.offer, one.cell.num_gpus, one.cell.micro_batch): one for one in every
    }


def test_a_cell_says_verdict_peak_rate_and_price() -> None:
    """And its plan, what a thousand samples cost, and the whole training."""
    answer = an_answer()
    mine = words_of(answer)[0, 3, 1]
    assert mine.is_this
    plan = answer.plan
    assert plan.step_time is not None
    assert (mine.verdict, mine.peak) == ("fits", "840 B")
    assert float(mine.rate) <= (plan.samples_per_s or 0) < float(mine.rate) * 1.001
    assert mine.price == "80.00 USD/h"
    assert mine.about[:2] == ("3 stages x 1 replica", "micro-batch 1 x 8")
    hours = Decimal(plan.step_time.expected_s / S_PER_HOUR)
    assert f"{80 * hours * 1000 / 8:.3g} USD for 1,000 samples" in mine.about
    assert mine.about[-1].endswith(f", {80 * hours * 100:.2f} USD")
    assert sum(one.is_this for one in words_of(answer).values()) == 1


def test_what_does_not_fit_says_what_it_needs_or_why() -> None:
    """Bytes for memory, a reason for all else; nothing is said of no plan."""
    found = words_of(an_answer())
    assert (found[0, 1, 1].verdict, found[0, 1, 1].peak) == ("fails", "needs ≥ 1,706 B")
    assert found[0, 3, 4].why == "fewer micro-batches than stages"
    assert not found[0, 3, 4].peak
    assert not any(one.about for one in found.values() if one.verdict != "fits")


def test_a_cell_that_is_slower_than_the_answer_may_be_says_so() -> None:
    """By the relative floor of the answer; an absolute one decides in the cell."""
    problem = a_grid_question(objective=Objective(rate_floor=0.9))
    answer = with_whole_grid(problem)
    (kind,) = kinds_of(answer, problem)
    last = answer.certificate.counts[-1]
    floor = last.floor_samples_per_s / last.num_gpus
    cells = [one for row in kind.rows.values() for one in row if one.cell.plan]
    slow = [one for one in cells if one.why == "below the rate floor"]
    assert 0 < len(slow) < len(cells)
    for one in cells:
        plan = one.cell.plan
        assert plan is not None
        is_below = plan.samples_per_s < floor * one.cell.num_gpus * (1 - 1e-9)
        assert (one in slow) is is_below
        assert cell_text(one).removesuffix(" @").endswith("slow") is is_below
    absolute = replace(problem, objective=Objective(min_samples_per_s=1e-3))
    (kind,) = kinds_of(with_whole_grid(absolute), absolute)
    assert not any(one.why for row in kind.rows.values() for one in row if one.about)


def test_a_table_keeps_the_column_of_the_plan_longest() -> None:
    """In plain letters, as it may go to a log file."""
    (kind,) = kinds_of(an_answer(), a_grid_question())
    assert kind_title(kind) == "h200-8, 900 B a device"
    table = kind_table(kind)
    assert [column.header for column in table.columns] == [
        "DEVICES",
        *(f"MICRO-BATCH {b}" for b in kind.micro_batches),
    ]
    assert table.row_count == len(kind.rows)
    assert "MICRO-BATCH 1" not in kind_less_important(kind)
    assert kind_less_important(kind)[0] == f"MICRO-BATCH {kind.micro_batches[-1]}"
    texts = [cell_text(one) for row in kind.rows.values() for one in row]
    assert all(text.isascii() for text in texts)
    assert [text for text in texts if text.endswith(" @")] == ["fits 840 B 0.07272/s @"]
    assert "fails >= 1,706 B" in texts
    assert "fails few micro-batches" in texts


def test_lines_say_what_was_left_out() -> None:
    """For lack of time, and kinds of machines; nothing where all is there."""
    grid = an_answer().grid
    assert grid is not None
    took = seconds_text(grid.search_s)
    assert list(grid_lines(grid)) == [f"20 of 20 cells searched in {took}"]
    first, *others = grid.cells
    late = GridCell(
        offer=first.offer,
        num_gpus=first.num_gpus,
        micro_batch=first.micro_batch,
        verdict=None,
    )
    grid = replace(grid, cells=(late, *others), limit_s=2.0, num_offers_left_out=2)
    assert list(grid_lines(grid))[1:] == [
        "1 not searched: 2 s were allowed; --grid-seconds allows more",
        "2 other kinds of machines left out",
    ]


@pytest.mark.parametrize("binding", list(Binding))
def test_every_reason_has_words(binding: Binding) -> None:
    """In the page and in a table; memory has its bytes."""
    answer = an_answer()
    assert answer.grid is not None
    cell = GridCell(
        offer=0, num_gpus=1, micro_batch=1, verdict=Verdict.FAILS, binding=binding
    )
    grid = replace(answer.grid, cells=(cell,))
    (one,) = words_of(replace(answer, grid=grid)).values()
    has_words = binding not in {Binding.MEMORY, Binding.WORK_LIMIT}
    assert bool(one.why) is has_words
    assert (len(cell_text(one)) > len("fails")) is has_words
