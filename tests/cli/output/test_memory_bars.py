"""Bars of ranks: their numbers."""

from __future__ import annotations

from plimsoll_cli.output.memory_bars import Gauge
from plimsoll_planner.units import GIB, MIB


def test_a_line_has_one_unit() -> None:
    """That of the load line."""
    gauge = Gauge(rank=0, measured=2 * MIB, predicted=3 * MIB, capacity=4 * MIB)
    assert gauge.peak_text + gauge.ahead == "2.0 of 4 MiB, predicted 3.0"
    large = Gauge(rank=0, measured=GIB, predicted=2 * GIB, capacity=80 * GIB)
    assert large.peak_text + large.ahead == "1.0 of 80 GiB, predicted 2.0"


def test_few_bytes_are_not_nothing() -> None:
    """They have a unit of their own; a dash is a rank that has not reported."""
    gauge = Gauge(rank=0, measured=20_000, predicted=600, capacity=4 * MIB)
    assert gauge.peak_text == "20 KiB of 4 MiB"
    assert gauge.ahead == ", predicted 600 B"
    silent = Gauge(rank=0, measured=0, predicted=600, capacity=4 * MIB)
    assert silent.peak_text == "- of 4 MiB"
