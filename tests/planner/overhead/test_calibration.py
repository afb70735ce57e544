"""Lines through observed overheads, and what they say of their error."""

from __future__ import annotations

import math

import pytest

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.overhead.calibration import OverheadRow, fit_line


def rows(*points: tuple[int, int, int]) -> list[OverheadRow]:
    """Build observations: micro-batch, communicators, bytes."""
    return [
        OverheadRow(micro_batch=b, num_communicators=c, overhead_bytes=value)
        for b, c, value in points
    ]


def test_a_line_is_found_again() -> None:
    """1000 + 20 b + 300 c, without error."""
    points = [(b, c, 1000 + 20 * b + 300 * c) for b in (1, 2, 8) for c in (1, 2, 3)]
    line = fit_line(rows(*points))
    assert line.constant_bytes == 1000
    assert line.bytes_per_sample == 20
    assert line.bytes_per_communicator == 300
    assert line.residual_bytes <= 1


def test_the_residual_is_a_prediction_interval() -> None:
    """Four values 10 +- 2 at one b: s = 4 / sqrt(3), t(3) = 3.182, n = 4."""
    line = fit_line(rows((1, 1, 8), (1, 1, 12), (1, 1, 8), (1, 1, 12)))
    assert (line.constant_bytes, line.bytes_per_sample) == (10, 0)
    half = 3.182 * math.sqrt(16 / 3) * math.sqrt(1.25)
    assert line.residual_bytes == math.ceil(half)


def test_a_line_never_falls() -> None:
    """A negative slope is left out: memory does not shrink with the micro-batch."""
    line = fit_line(rows((1, 1, 100), (2, 1, 90), (8, 1, 80)))
    assert line.bytes_per_sample == 0
    assert line.constant_bytes == 90


def test_too_few_rows_say_nothing_of_their_error() -> None:
    """One row fixes the line; half of its value stands for what is not known."""
    line = fit_line(rows((4, 2, 1000)))
    assert line.constant_bytes == 1000
    assert line.residual_bytes == 500


def test_no_row_is_no_line() -> None:
    """There is nothing to fit."""
    with pytest.raises(InvalidFieldError, match="at least one observation"):
        fit_line([])
