"""Devices of a placement on a terminal: numbers of their peaks, nothing of layers."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.output.answer_tables import alternative_rows, mesh_text, tuples_table
from plimsoll_cli.output.placement_table import (
    MOST_NAME,
    contributor_lines,
    placement_table,
    print_plan,
    shortened,
)
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.placement_plan import ContributorKind
from plimsoll_planner.units import at_least
from tests.support.placed_questions import a_placed_question, a_tight_question
from tests.support.questions import a_question, solved


def test_a_row_has_the_numbers_of_its_peak() -> None:
    """By number of the device; parts that no device has are left out."""
    plan = solved(a_tight_question()).plan
    assert plan.placement is not None
    table = placement_table(plan, plan.placement)
    columns = {str(column.header): list(column.cells) for column in table.columns}
    peaks = plan.placement.peaks
    assert columns["DEVICE"] == ["0", "1"]
    fullest = peaks[0]
    row = {heading: cells[0] for heading, cells in columns.items()}
    assert row["PEAK"] == at_least(fullest.peak_bytes)
    assert row["OF CAPACITY"] == "100%"
    assert row["PEAK AT"] == f"operator {fullest.place} of {len(plan.placement.order)}"
    assert row["PARAMETERS"] == at_least(fullest.parameter_bytes)
    assert row["GRADIENTS"] == at_least(fullest.gradient_bytes)
    assert row["OPTIMIZER"] == at_least(fullest.optimizer_bytes)
    assert row["VALUES"] == at_least(fullest.value_bytes)
    assert row["RECEIVED"] == at_least(fullest.received_bytes)
    assert row[""] == "#" * 20
    assert not {"WORKING MEMORY", "RANKS"} & set(columns)


def test_a_peak_behind_all_operators_is_that_of_the_optimizer() -> None:
    """It has no place in the order; nothing is alive then that is worth a line."""
    plan = solved(a_placed_question()).plan
    assert plan.placement is not None
    [peak] = plan.placement.peaks
    last = replace(peak, place=len(plan.placement.order), contributors=())
    placement = replace(plan.placement, peaks=(last,))
    table = placement_table(plan, placement)
    places = [list(c.cells) for c in table.columns if c.header == "PEAK AT"]
    assert places == [["optimizer step"]]
    assert list(contributor_lines(placement)) == []


def test_the_largest_are_named_and_received_ones_are_marked() -> None:
    """Three of each device, in the order of the table."""
    placement = solved(a_tight_question()).plan.placement
    assert placement is not None
    lines = list(contributor_lines(placement))
    assert len(lines) == 2
    largest = placement.peaks[0].contributors
    assert lines[0].startswith(
        f"largest on device 0: {largest[0].name} {at_least(largest[0].num_bytes)}, "
    )
    received = [one for peak in placement.peaks for one in peak.contributors[:3]]
    marked = sum(line.count("(received)") for line in lines)
    assert marked == sum(one.kind is ContributorKind.RECEIVED for one in received) > 0


def test_a_long_name_loses_its_middle() -> None:
    """Both ends tell operators apart."""
    name = f"model.layers.0.{'attention.' * 9}backward/scaled_mm_17"
    assert shortened(name).startswith("model.laye…")
    assert shortened(name).endswith("attention.backward/scaled_mm_17"[2:])
    assert len(shortened(name)) == MOST_NAME
    assert shortened("mm_17") == "mm_17"


def test_a_placed_plan_is_printed_without_stages_and_layers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And a plan of layers with them."""
    print_plan(solved(a_tight_question()).plan, 1)
    said = capsys.readouterr().out
    assert "DEVICE" in said
    assert "largest on device 1: " in said
    assert not any(word in said for word in ("STAGE", "LAYERS", "RECOMPUTE"))
    print_plan(solved(a_question(900)).plan, 900)
    said = capsys.readouterr().out
    assert "STAGE" in said
    assert "DEVICE" not in said


def test_other_tables_have_devices_where_a_pipeline_has_stages() -> None:
    """Replicas of a device are its ranks."""
    question = a_placed_question(override=Override(num_gpus=2, data_degree=2))
    answer = solved(question)
    plan, placement = answer.plan, answer.plan.placement
    assert mesh_text(plan) == "operators on 1 device x 2 replicas"
    assert "STAGES" not in alternative_rows([plan], None)[0]
    table = tuples_table(answer.certificate.counts[1], question.offers)
    assert [str(column.header) for column in table.columns][:2] == [
        "DEVICES",
        "REPLICAS",
    ]
    assert placement is not None
    cells = [list(c.cells) for c in placement_table(plan, placement).columns][:2]
    assert cells == [["0"], ["0-1"]]
