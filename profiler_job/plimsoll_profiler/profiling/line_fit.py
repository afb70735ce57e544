"""Probes at a few micro-batches become a line: constant, slope and residual.

A layer's bytes and seconds are measured at micro-batches such as 1, 2 and 4, and
predicted for others (`plimsoll_planner.records.layer_costs`). Least squares under the
condition that neither constant nor slope is negative: for two unknowns the constrained
optimum is the free one, or the better of the two lines on the border.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Generic, TypeVar

import numpy as np

from plimsoll_profiler.errors import TooFewProbesError

LINE_POINTS, SEEN_POINTS = 2, 3
"""Largest probes that a line goes through, and that it is compared with."""
Number = TypeVar("Number", int, float)
Fit = Callable[[Sequence[int], Sequence[Number]], tuple[Number, Number, Number]]
"""From one or two probes to constant, slope and residual."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line(Generic[Number]):
    """value(b) = constant + slope * b, off by at most `residual` at the probes."""

    constant: Number
    slope: Number
    residual: Number


def fit_line(micro_batches: Sequence[int], values: Sequence[float]) -> Line[float]:
    """Line with non-negative constant and slope.

    Args:
        micro_batches: samples of each probe, n of them.
        values: bytes or seconds of each probe, n of them, in the same order.

    Raises:
        TooFewProbesError: fewer than two different micro-batches.
    """
    if len(set(micro_batches)) < 2:  # noqa: PLR2004 - a line has two unknowns
        raise TooFewProbesError(
            f"probes at micro-batches {sorted(set(micro_batches))}, but a line needs "
            "two different ones: allow a larger micro-batch, or more memory"
        )
    b, y = np.asarray(micro_batches, float), np.asarray(values, float)
    design = np.stack([np.ones_like(b), b], axis=1)
    free = np.linalg.lstsq(design, y)[0]
    candidates = [
        free,
        np.array([max(y.mean(), 0.0), 0.0]),
        np.array([0.0, max(b @ y / (b @ b), 0.0)]),
    ]
    allowed = [line for line in candidates if (line >= 0).all()]
    best = min(allowed, key=lambda line: float(((design @ line - y) ** 2).sum()))
    residual = np.abs(design @ best - y).max()
    return Line(constant=float(best[0]), slope=float(best[1]), residual=float(residual))


def largest_gap(
    constant: float, slope: float, micro_batches: Sequence[int], values: Sequence[float]
) -> float:
    """Largest distance of a probe from a line; whole for whole numbers."""
    pairs = zip(micro_batches, values, strict=True)
    return max(abs(constant + slope * b - value) for b, value in pairs)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleLine(Line[Number]):
    """A quantity over the micro-batch: probed one by one at first, then a line."""

    probed: tuple[Number, ...]


def fit_samples(
    micro_batches: Sequence[int], values: Sequence[Number], fit: Fit[Number]
) -> SampleLine[Number]:
    """The probes as they are, and a line behind them.

    Micro-batches and values are those of `fit_line`; `fit` draws the line.
    """
    points = sorted(zip(micro_batches, values, strict=True))
    known = dict(points)
    run = takewhile(lambda b: b in known, count(1))
    probed = tuple(known[b] for b in run)
    constant, slope, residual = fit(*zip(*points, strict=True))
    return SampleLine(probed=probed, constant=constant, slope=slope, residual=residual)


def bytes_line(
    micro_batches: Sequence[int], values: Sequence[int]
) -> tuple[int, int, int]:
    """Line of whole bytes through the two largest probes: constant, slope, residual.

    A peak is the largest of several lines, so it bends upward and is straight from the
    last bend on; the next smaller probe shows whether that lies behind. Through one
    probe alone, all of it is taken to grow with the samples. Constant and slope for
    each sample are rounded to the nearest byte; the residual is that of the rounded
    line, so that none of the three probes lies outside.

    Raises:
        TooFewProbesError: several probes of one micro-batch.
    """
    if len(values) == 1:
        return 0, -(-values[0] // micro_batches[0]), 0
    line = fit_line(micro_batches[-LINE_POINTS:], values[-LINE_POINTS:])
    constant, slope = round(line.constant), round(line.slope)
    seen = micro_batches[-SEEN_POINTS:], values[-SEEN_POINTS:]
    return constant, slope, int(largest_gap(constant, slope, *seen))


def is_on_line(micro_batches: Sequence[int], values: Sequence[int]) -> bool:
    """Whether probes lie on one line, to the byte."""
    first, last = micro_batches[0], micro_batches[-1]
    rise = values[-1] - values[0]
    return all(
        (value - values[0]) * (last - first) == rise * (b - first)
        for b, value in zip(micro_batches, values, strict=True)
    )


def seconds_line(
    micro_batches: Sequence[int], values: Sequence[float]
) -> tuple[float, float, float]:
    """Line of seconds in the same way."""
    line = line_through(micro_batches[-LINE_POINTS:], values[-LINE_POINTS:])
    seen = micro_batches[-SEEN_POINTS:], values[-SEEN_POINTS:]
    return line.constant, line.slope, largest_gap(line.constant, line.slope, *seen)


def line_through(micro_batches: Sequence[int], values: Sequence[float]) -> Line[float]:
    """Line through probes; through one alone, it grows with the samples."""
    if len(values) > 1:
        return fit_line(micro_batches, values)
    return Line(constant=0.0, slope=values[0] / micro_batches[0], residual=0.0)
