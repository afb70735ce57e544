"""Numbers in the unit of their page, rounded to the side on which they stay true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_cli.output.scales import (
    MOST_TICKS,
    ByteScale,
    percent_text,
    seconds_text,
    ticks,
)

MIB, GIB = 2**20, 2**30


@pytest.mark.parametrize(
    ("most_bytes", "num_bytes", "up", "down"),
    [
        (900, 899, "899 B", "899 B"),
        (4 * MIB, MIB + 1, "1.01 MiB", "1 MiB"),
        (256 * MIB, 256 * MIB, "256.0 MiB", "256 MiB"),
        (256 * MIB, 41 * MIB - 1, "41.0 MiB", "40.9 MiB"),
        (80 * GIB, 79 * GIB + 1, "79.01 GiB", "79 GiB"),
        (1000 * GIB, 100 * GIB + 1, "101 GiB", "100 GiB"),
        (10_000 * GIB, 1234 * GIB, "1,234 GiB", "1,234 GiB"),
    ],
)
def test_one_unit_for_all_that_is_compared(
    most_bytes: int, num_bytes: int, up: str, down: str
) -> None:
    """The unit is that of the largest; needs round up, what there is rounds down."""
    scale = ByteScale.up_to(most_bytes)
    assert (scale.up(num_bytes), scale.down(num_bytes)) == (up, down)


def test_what_would_read_as_nothing_has_a_smaller_unit() -> None:
    """A kilobyte beside gigabytes is there, and not 0.00 GiB; nothing is nothing."""
    scale = ByteScale.up_to(80 * GIB)
    assert scale.near_or_smaller(1024) == "1.00 KiB"
    assert scale.near_or_smaller(10 * GIB) == "10.00 GiB"
    assert scale.near_or_smaller(0) == "0.00 GiB"


def test_ticks_of_bytes_are_powers_of_two_apart() -> None:
    """In the unit of the page, up to the end of the axis."""
    texts = [text for _, text in ByteScale.up_to(80 * GIB).ticks(82 * GIB)]
    assert texts == ["0", "16 GiB", "32 GiB", "48 GiB", "64 GiB", "80 GiB"]
    places = [place for place, _ in ByteScale.up_to(128 * MIB).ticks(132 * MIB)]
    assert places == [0, 32 * MIB, 64 * MIB, 96 * MIB, 128 * MIB]


@given(st.integers(1, 2**50))
def test_an_axis_of_bytes_has_a_few_ticks(most_bytes: int) -> None:
    """Neither one alone, where there is room, nor too many to read."""
    found = ByteScale.up_to(most_bytes).ticks(most_bytes)
    assert len(found) <= MOST_TICKS
    assert len(found) > 1 or most_bytes < 4
    assert all(place <= most_bytes for place, _ in found)


NUMBERS = st.floats(-1e12, 1e12)


@given(NUMBERS, NUMBERS)
def test_ticks_hold_the_range(one: float, other: float) -> None:
    """At least two, rising, from below the least to above the most."""
    low, high = min(one, other), max(one, other)
    found = ticks(low, high)
    rounding = 1e-9 * max(abs(low), abs(high), 1e-300)
    assert 2 <= len(found) <= MOST_TICKS + 1
    assert found == sorted(set(found))
    assert found[0] <= low + rounding
    assert found[-1] >= high - rounding


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0.0, "0.00%"),
        (0.0123, "1.23%"),
        (-0.0123, "-1.23%"),
        (0.00123, "0.12%"),
        (0.0000234, "0.0023%"),
        (0.000002, "<0.001%"),
    ],
)
def test_a_small_part_keeps_its_digits(part: float, text: str) -> None:
    """A prediction that is off by a little is not shown as exact."""
    assert percent_text(part) == text


def test_seconds_have_the_unit_that_suits_them() -> None:
    """Three digits that count."""
    assert seconds_text(2.341) == "2.34 s"
    assert seconds_text(0.0234) == "23.4 ms"
    assert seconds_text(0.00001) == "10 µs"
    assert seconds_text(0) == "0 µs"
    assert seconds_text(999.9) == "1,000 s"
    assert seconds_text(2050) == "34.2 min"
    assert seconds_text(20_500) == "5.7 h"
