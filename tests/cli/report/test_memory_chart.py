"""Bars of memory: where their parts lie, and the text beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_cli.report.memory_chart import MemoryView, memory_view
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.override import Override
from tests.support.drawing import draws
from tests.support.placed_questions import a_placed_question
from tests.support.questions import a_device, a_question
from tests.support.reports import a_record, a_run, told_by

ROUNDING = 0.011
"""Percent: two places that were rounded."""


def view_of(record: RunRecord) -> MemoryView:
    """Bars of a record that has a plan."""
    plan = record.plan
    assert plan is not None
    view = memory_view(record, plan)
    assert view is not None
    return view


@settings(max_examples=draws(25))
@given(st.integers(400, 1500), st.sampled_from([0.0, 0.1]), st.integers(0, 900))
def test_parts_fill_a_bar_up_to_what_is_expected(
    memory_bytes: int, headroom: float, peak_bytes: int
) -> None:
    """End to end from 0, then the bound; nothing lies beyond the axis."""
    limits = Limits(max_gpus=8, headroom=headroom)
    record = a_record(a_question(memory_bytes, limits=limits))
    plan = record.plan
    if plan is None:
        return
    record = replace(record, observations=(told_by(plan, 0, peak_bytes),))
    view = view_of(record)
    assert len(view.bars) == plan.num_gpus
    for bar in view.bars:
        end = 0.0
        for part in bar.parts:
            assert part.left == pytest.approx(end, abs=ROUNDING)
            end = part.left + part.width
        assert end == pytest.approx(bar.expected, abs=ROUNDING)
        assert bar.expected <= bar.bound <= 100
    measured = view.bars[0].measured
    assert measured is not None
    assert 0 <= measured <= 100
    assert view.load_line is not None
    usable = limits.usable_bytes(memory_bytes)
    assert view.load_line * peak_bytes == pytest.approx(
        measured * usable, rel=0.01, abs=ROUNDING * usable
    )


def test_a_measured_peak_stands_beside_its_prediction() -> None:
    """A hundredth above what was expected is shown as such, for the rank and in all."""
    record = a_run()
    plan = record.plan
    assert plan is not None
    peak = plan.stages[0].peak()
    assert peak is not None
    expected = peak.device.expected_bytes
    observation = told_by(plan, 0, expected + round(expected / 50))
    view = view_of(
        replace(record, observations=(observation, *record.observations[1:]))
    )
    assert view.bars[0].cells["measured"] == f"{expected + round(expected / 50)} B"
    assert view.bars[0].cells["error"].startswith("+")
    assert view.bars[1].cells["error"] == "+0.00%"
    assert max(view.errors) == pytest.approx(0.02, abs=0.001)
    assert "backward" in view.bars[0].spoken
    assert "in attempt" not in view.take


def test_before_a_step_is_over_nothing_counts_as_measured() -> None:
    """Memory of a rank while it is built is no peak of training."""
    record = a_run()
    plan = record.plan
    assert plan is not None
    early = told_by(plan, 0, 10, num_steps=0)
    view = view_of(replace(record, observations=(early,)))
    assert view.errors == ()
    assert "nothing was measured yet" in view.take


def test_a_load_line_far_away_is_not_drawn_to_scale() -> None:
    """Of a device with room for a hundred such jobs the bar is still to be read."""
    view = view_of(a_record(a_question(10**6)))
    assert view.load_line is None
    assert view.far_text.endswith("times as far")
    assert view.bars[0].bound > 90


def test_many_ranks_have_a_bar_for_each_stage() -> None:
    """It shows the fullest of its ranks; errors are those of all."""
    device = a_device(2000, devices_per_node=64)
    question = a_question(
        offers=(device,),
        global_batch_size=40,
        limits=Limits(max_gpus=40),
        override=Override(num_stages=2, data_degree=20),
    )
    record = a_record(question)
    plan = record.plan
    assert plan is not None
    observations = tuple(told_by(plan, rank, 1024 + 256 * rank) for rank in range(40))
    view = view_of(replace(record, observations=observations))
    assert [bar.name for bar in view.bars] == ["stage 0", "stage 1"]
    assert [bar.cells["measured"] for bar in view.bars] == ["5.75 KiB", "10.75 KiB"]
    assert len(view.errors) == 40


def test_without_a_problem_a_bar_is_of_one_kind() -> None:
    """The parts of a peak are not guessed."""
    view = view_of(replace(a_run(), problem=None))
    assert view.kinds == ("expected",)


def test_a_plan_without_predictions_has_no_bars() -> None:
    """A plan that was written by hand, say."""
    record = a_record()
    plan = record.plan
    assert plan is not None
    stages = tuple(replace(stage, peaks=()) for stage in plan.stages)
    assert memory_view(record, replace(plan, stages=stages)) is None


@pytest.mark.parametrize(("data_degree", "noun"), [(1, "rank"), (20, "device")])
def test_placed_operators_are_on_devices_and_no_layers(
    data_degree: int, noun: str
) -> None:
    """Device k is stage k, which stands for no layer."""
    problem = a_placed_question(
        offers=(a_device(2**27, devices_per_node=64),),
        global_batch_size=40,
        limits=Limits(max_gpus=40),
        override=Override(num_stages=2, data_degree=data_degree),
    )
    view = view_of(a_record(problem))
    assert view.noun == noun
    assert [bar.name for bar in view.bars] == [f"{noun} 0", f"{noun} 1"]
    holds = ["20 ranks"] * 2 if noun == "device" else ["device 0", "device 1"]
    assert [bar.holds for bar in view.bars] == holds
    assert {"values", "received values"} <= set(view.kinds)
