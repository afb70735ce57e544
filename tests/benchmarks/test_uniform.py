"""The arithmetic of bench-uniform: what a row says of two plans."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from dataclasses import replace

from benchmarks.support.ways import tensor_bytes
from benchmarks.uniform import HEAD, RUN_HEAD, Planned, Row, error_percent, less
from plimsoll_planner.records.plan import HybridPlan
from tests.support.builders import MIB, a_peak, a_plan


def plan_of(*upper_bytes: int) -> HybridPlan:
    """A plan whose stages have these upper bounds."""
    plan = a_plan()
    stages = tuple(
        replace(stage, peaks=(a_peak(upper_bytes=each),))
        for stage, each in zip(plan.stages, upper_bytes, strict=True)
    )
    return replace(plan, stages=stages)


def planned(*upper_bytes: int, step_s: float) -> Planned:
    """Such a plan with its step."""
    return Planned(plan=plan_of(*upper_bytes), step_s=step_s, open_part=0.0)


ROW = Row(
    family="GPT",
    way="cuts",
    limit=1.25,
    alone=planned(40 * MIB, 20 * MIB, step_s=1.0),
    uniform=planned(25 * MIB, 20 * MIB, step_s=1.2),
    exact=planned(20 * MIB, 10 * MIB, step_s=1.1),
)


def test_a_peak_is_that_of_the_fullest_rank() -> None:
    """Not the sum, nor the last."""
    assert tensor_bytes(ROW.alone.plan) == 40 * MIB


def test_a_row_compares_with_both_kinds_of_uniform_cuts() -> None:
    """Alone, which the bar is about, and with all that a plan may choose."""
    cells = ROW.cells()
    assert len(cells) == len(HEAD)
    assert cells[5:8] == ("50.0 %", "20.0 %", "1.10")
    assert cells[-1] == "yes"
    assert replace(ROW, exact=ROW.uniform).cells()[-1] == "**no**"


def test_a_row_that_was_trained_has_what_was_measured() -> None:
    """Beside what was predicted."""
    cells = replace(ROW, alone_bytes=50 * MIB, exact_bytes=30 * MIB).cells()
    assert len(cells) == len(HEAD) + len(RUN_HEAD)
    assert cells[-1] == "40.0 %"


def test_an_error_is_that_of_the_fullest_rank() -> None:
    """Of the measured peak, to either side."""
    assert error_percent(ROW.alone.plan, [20 * MIB, 80 * MIB]) == pytest.approx(50)
    assert error_percent(ROW.alone.plan, [32 * MIB, 10 * MIB]) == pytest.approx(25)
    assert less(150, 100) == pytest.approx(-50)
