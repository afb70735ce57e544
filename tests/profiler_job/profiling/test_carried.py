"""Carried values of a profile: a line of bytes each, exact where they are known."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

from plimsoll_planner.records.layer_costs import Source
from plimsoll_profiler.profiling.carried import Carried, byte_columns


def test_bytes_of_values_are_exact_and_on_a_line() -> None:
    """At what was asked for, and behind it."""
    values = [
        Carried(
            name=name,
            source=-1,
            takers=(1, 3),
            micro_batches=(1, 2, 3),
            num_bytes=tuple(each * b for b in (1, 2, 3)),
            needs_gradient=False,
        )
        for name, each in (("a", 100), ("b", 8))
    ]
    assert [one.target for one in values] == [3, 3]
    columns = byte_columns(values, Source.TRACED)
    for row, each in enumerate((100, 8)):
        for micro_batch in (1, 2, 3, 64):
            bounds = columns.at(row, micro_batch)
            assert bounds.lower_bytes == bounds.upper_bytes == each * micro_batch
