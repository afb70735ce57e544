"""Probes become a line that no probe lies outside of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_profiler.errors import TooFewProbesError
from plimsoll_profiler.profiling.line_fit import bytes_line, fit_line

PROBES = (1, 2, 4)


@given(constant=st.integers(0, 2**45), slope=st.integers(0, 2**40))
def test_an_exact_line_is_found_exactly(constant: int, slope: int) -> None:
    """Bytes that are linear in the micro-batch leave no residual worth a byte."""
    values = [constant + slope * b for b in PROBES]
    found_constant, found_slope, residual = bytes_line(PROBES, values)
    assert abs(found_slope - slope) <= 1 + slope // 10**12
    assert residual <= 4 + max(values) // 10**12
    assert abs(found_constant - constant) <= 4 + max(values) // 10**12


@given(values=st.lists(st.floats(0, 1e12), min_size=3, max_size=3))
def test_the_fit_is_the_best_line_without_a_negative_part(values: list[float]) -> None:
    """No line of a fine grid of non-negative lines comes closer."""
    line = fit_line(PROBES, values)
    assert line.constant >= 0
    assert line.slope >= 0
    b, y = np.asarray(PROBES, float), np.asarray(values)

    def error(constant: float, slope: float) -> float:
        return float(((constant + slope * b - y) ** 2).sum())

    ours = error(line.constant, line.slope)
    grid = np.linspace(0, max(values), 41)
    best = min(error(c, s) for c in grid for s in grid)
    assert ours <= best * (1 + 1e-9) + 1e-6


@given(values=st.lists(st.integers(0, 2**50), min_size=3, max_size=3))
def test_no_probe_lies_outside_the_residual(values: list[int]) -> None:
    """The residual is that of the rounded line, so it covers every probe."""
    constant, slope, residual = bytes_line(PROBES, values)
    for b, value in zip(PROBES, values, strict=True):
        assert abs(constant + slope * b - value) <= residual


def test_a_falling_quantity_becomes_a_constant() -> None:
    """Noise may fall with the batch; a negative slope would predict nonsense."""
    line = fit_line((1, 2, 4), (10.0, 9.0, 8.0))
    assert line.slope == 0
    assert line.constant == pytest.approx(9.0)
    assert line.residual == pytest.approx(1.0)


@pytest.mark.parametrize("micro_batches", [(), (2,), (2, 2)])
def test_one_micro_batch_is_no_line(micro_batches: tuple[int, ...]) -> None:
    """The message says what was probed and what to allow."""
    with pytest.raises(TooFewProbesError, match="needs two different ones"):
        fit_line(micro_batches, [1.0] * len(micro_batches))
