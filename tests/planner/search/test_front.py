"""Fronts found by the library, held against the definition of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.search.front import ROUNDING, is_on_front, places

ROWS = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.tuples(*[st.integers(0, 5)] * width), min_size=1, max_size=12
    )
)


@given(ROWS)
def test_a_front_is_what_no_other_row_beats(rows: list[tuple[int, ...]]) -> None:
    """Nowhere larger, somewhere smaller; the first of equal rows stands for all."""
    for at, (row, is_kept) in enumerate(zip(rows, is_on_front(rows), strict=True)):
        is_beaten = any(
            other != row and all(a <= b for a, b in zip(other, row, strict=True))
            for other in rows
        )
        assert is_kept is (not is_beaten and row not in rows[:at])


def test_whole_numbers_are_told_apart_up_to_the_largest() -> None:
    """Bytes and counts, of which doubles have each one."""
    largest = 2**53 - 1
    assert is_on_front([(1, largest), (2, largest)]) == [True, False]
    assert is_on_front([(1, largest), (2, 1)]) == [True, True]
    assert is_on_front([]) == []


@pytest.mark.parametrize(
    ("slower", "is_kept"), [(1 + ROUNDING / 2, True), (1 + 2 * ROUNDING, False)]
)
def test_rounding_beats_nothing(slower: float, is_kept: bool) -> None:
    """A plan of less memory is not beaten by one that is faster by a hair."""
    plans = [(2.0, 100.0, 1.0), (2.0, 99.0, slower)]
    assert is_on_front(plans) == [not is_kept, True]
    assert is_on_front([(2.0, 100.0, 1.0), (2.0, 100.0, slower)]) == [True, False]


def test_numbers_of_one_place_are_within_rounding_of_its_first() -> None:
    """However many follow each other at less than that."""
    step = 1 + 0.6 * ROUNDING
    numbers = [1.0, step, step**2, 2.0, 0.0]
    assert places(numbers) == [1, 1, 2, 3, 0]
