"""The table of search fields: every row names what is there, and nothing is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import plimsoll_planner
from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.record import Record, shapes_of
from plimsoll_planner.search_fields import (
    FIELDS,
    INPUTS,
    RECORDS,
    SearchField,
    problem_parts,
)

PLANNER = Path(plimsoll_planner.__path__[0])
SET_BY_NOBODY = {
    *("limits.pipeline_degrees", "limits.data_degrees", "limits.tensor_degrees"),
    *("limits.schedules", "limits.shardings", "limits.in_flight_caps"),
    *("limits.optimizer_homes", "limits.offload"),
}
"""Fields that only a program sets, which asks for a part of the space."""


@pytest.mark.parametrize("row", [*INPUTS, *FIELDS], ids=lambda row: row.record)
def test_a_row_names_a_field_of_a_record(row: SearchField) -> None:
    """A row whose field was renamed is found here, and not by whoever sets it."""
    assert row.name in shapes_of(RECORDS[row.part])


def test_names_occur_once() -> None:
    """A path, an option or a place in the spec that two rows have is a mistake."""
    rows = [*INPUTS, *FIELDS]
    for names in (
        [row.record for row in rows],
        [row.option for row in rows],
        [row.spec for row in rows if row.spec],
    ):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("part", "record"),
    [("limits", Limits), ("objective", Objective), ("override", Override)],
)
def test_a_field_that_has_no_row_says_so(part: str, record: type[Record]) -> None:
    """A new field of a question has a row, or is one that no person sets."""
    paths = {f"{part}.{field}" for field in shapes_of(record)}
    assert paths - {row.record for row in FIELDS} == {
        path for path in SET_BY_NOBODY if path.startswith(f"{part}.")
    }


def test_the_help_of_sharding_names_all_levels() -> None:
    """A level that was added later is offered, so it is explained."""
    [row] = [row for row in FIELDS if row.record == "override.sharding"]
    assert all(f"`{level}`" in row.help for level in Sharding)


def test_texts_mark_the_fields_that_they_name() -> None:
    """A path in backticks has a row, so that no reader sees the words of a record."""
    paths = {row.record for row in (*INPUTS, *FIELDS)}
    for file in PLANNER.rglob("*.py"):
        text = file.read_text()
        marked = re.findall(r"`((?:limits|objective|override)\.\w+)`", text)
        assert set(marked) <= paths, file


def test_an_open_limit_is_wide_enough_for_what_is_fixed() -> None:
    """One that somebody set stays as it is, and None is the same as not set."""
    most = "limits.max_gpus"
    assert problem_parts({})["limits"].max_gpus == 16
    assert problem_parts({"override.num_gpus": 32})["limits"].max_gpus == 32
    fixed = {"override.num_gpus": 32, most: 16, "num_steps": None}
    parts = problem_parts(fixed)
    assert parts["limits"].max_gpus == 16
    assert "num_steps" not in parts
