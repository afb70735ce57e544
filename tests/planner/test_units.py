"""Bytes in words never promise too much."""

from __future__ import annotations

import pytest

from plimsoll_planner.units import at_least, at_most, bytes_of, number_text


@pytest.mark.parametrize(
    ("num_bytes", "needed", "had"),
    [
        (424, "424 B", "424 B"),
        (2**20 + 1, "1.01 MiB", "1.00 MiB"),
        (128 * 2**20, "128.00 MiB", "128.00 MiB"),
        (2**30 + 1, "1.01 GiB", "1.00 GiB"),
        (3 * 2**29, "1.50 GiB", "1.50 GiB"),
    ],
)
def test_what_is_needed_is_rounded_up_and_what_there_is_down(
    num_bytes: int, needed: str, had: str
) -> None:
    """A miss by one byte still reads as a miss."""
    assert at_least(num_bytes) == needed
    assert at_most(num_bytes) == had


@pytest.mark.parametrize("num_bytes", [1, 424, 2**20 - 1, 3 * 2**29])
def test_what_is_shown_can_be_typed(num_bytes: int) -> None:
    """With a blank before the unit, or without one."""
    shown = at_least(num_bytes)
    assert bytes_of(shown) == bytes_of(shown.replace(" ", "")) == num_bytes
    assert bytes_of("1 gb") is None


def test_numbers_have_the_digits_that_matter_and_no_exponent() -> None:
    """Large ones are rounded all the same, their thousands apart."""
    assert number_text(29_514.3) == "29,510"
    assert number_text(61.794) == "61.79"
    assert number_text(54.0) == "54"
    assert number_text(0.00002951) == "0.00002951"
    assert number_text(29_514.3, 2) == "30,000"
