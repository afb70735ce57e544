"""Carried values of a profile: a line of bytes each, exact where they are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

pytest.importorskip("numpy")

from plimsoll_planner.records.layer_costs import Source
from plimsoll_profiler.probing.messages import CarriedFrame, Frame
from plimsoll_profiler.profiling.carried import carried_columns


def test_bytes_of_values_are_exact_and_on_a_line() -> None:
    """At what was asked for, and behind it."""
    values = tuple(
        CarriedFrame(
            name=name,
            source=-1,
            takers=(1, 3),
            num_bytes=tuple(each * b for b in (1, 2, 3)),
            needs_gradient=False,
        )
        for name, each in (("a", 100), ("b", 8))
    )
    frame = cast(Frame, SimpleNamespace(carried=values, micro_batches=(1, 2, 3)))
    columns = carried_columns(frame, Source.TRACED)
    assert columns.name == ("a", "b")
    assert columns.target == (3, 3)
    for row, each in enumerate((100, 8)):
        for micro_batch in (1, 2, 3, 64):
            bounds = columns.value.at(row, micro_batch)
            assert bounds.lower_bytes == bounds.upper_bytes == each * micro_batch
