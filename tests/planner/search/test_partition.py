"""Programmes over suffixes against all cuts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
from plimsoll_planner.search.partition import least_largest, least_suffix_peaks


def all_cuts(size: int, num_stages: int) -> Iterator[tuple[int, ...]]:
    """Yield the first layers of the stages, in lexicographic order."""
    for inner in itertools.combinations(range(1, size), num_stages - 1):
        yield (0, *inner)


@st.composite
def matrices(draw: st.DrawFn) -> list[list[list[int]]]:
    """Draw values of all stages, few different ones, 9 for an impossible stage."""
    size = draw(st.integers(1, 6))
    stages = draw(st.integers(1, size))
    row = st.lists(st.integers(0, 9), min_size=size + 1, max_size=size + 1)
    matrix = st.lists(row, min_size=size, max_size=size)
    return draw(st.lists(matrix, min_size=stages, max_size=stages))


def values_of(tables: list[list[list[int]]], cuts: tuple[int, ...]) -> list[int]:
    """Value of every stage of some cuts."""
    ends = (*cuts[1:], len(tables[0]))
    return [
        table[first][end] for table, first, end in zip(tables, cuts, ends, strict=True)
    ]


@given(matrices())
def test_least_largest_is_the_best_of_all_cuts(tables: list[list[list[int]]]) -> None:
    """Value and lexicographically first cuts; None where every cut is impossible."""
    size = len(tables[0])
    arrays = []
    for table in tables:
        array = np.array(table, dtype=np.float64)
        array[array == 9] = np.inf
        array[np.tri(size, size + 1, dtype=np.bool_)] = np.inf
        arrays.append(array)
    best = min(
        (max(values_of(tables, cuts)), cuts) for cuts in all_cuts(size, len(tables))
    )
    found = least_largest(arrays)
    judged = None if found is None else (found.value, found.cuts)
    assert judged == (None if best[0] == 9 else best)


@given(matrices())
def test_the_least_peak_answers_for_every_number_of_stages(
    tables: list[list[list[int]]],
) -> None:
    """f[e][0] is the least largest value of e stages, each valued by those left."""
    size = len(tables[0])
    peaks = []
    for table in tables:
        array = np.array(table, dtype=np.int64)
        array[np.tri(size, size + 1, dtype=np.bool_)] = LARGEST_BYTES
        peaks.append(array)
    least = least_suffix_peaks(lambda left: peaks[left - 1], len(tables))
    for stages in range(1, len(tables) + 1):
        in_order = tables[:stages][::-1]
        best = min(max(values_of(in_order, cuts)) for cuts in all_cuts(size, stages))
        assert least[stages][0] == best
