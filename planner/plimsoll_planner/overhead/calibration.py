"""Fit of the bytes on a device besides tensors to observations.

In: observed bytes with their micro-batch and number of communicators. Out: an
`OverheadLine`. Called where observations come in, and by the tests on measured rows.

    bytes = constant + per_sample * b + per_communicator * c

by least squares with no negative term; c is fitted only where its number varies and
enough rows are left. The interval is one residual for the whole line, because that is
what a line has: the half-width of the 95 % prediction interval of one more observation
in the middle of the observed ones,

    residual = t(97.5 %, n - p) * s * sqrt(1 + 1/n)        s^2 = mean error^2 n/(n - p)

with p fitted terms, s the standard error of the fit and Student's t. n is how many rows
are independent: rows of one plan are nearly copies, whose agreement is no evidence for
the next plan. With too few of them (n <= p) the error of the line is unknown; then half
of the largest value stands in. No row is farther from the line than this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.device_overhead import OverheadLine

STUDENT_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""97.5 % quantiles for 1 to 20 degrees of freedom."""
NORMAL_QUANTILE = 1.96
WITHOUT_ERROR = 0.5
"""Half-width, as a part of the largest value, where n rows fix all p terms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OverheadRow:
    """Bytes of one measured rank besides those predicted."""

    micro_batch: int
    num_communicators: int
    overhead_bytes: int


def fit_line(
    rows: Sequence[OverheadRow],
    *,
    num_independent: int | None = None,
    fit_communicators: bool = True,
) -> OverheadLine:
    """Fit one line.

    Args:
        rows: at least one observation.
        num_independent: of the rows; None: all are.
        fit_communicators: try a term for the number of communicators.

    Raises:
        InvalidFieldError: there is no row.
    """
    if not rows:
        raise InvalidFieldError("rows", (), "at least one observation")
    number = len(rows) if num_independent is None else num_independent
    values = np.array([row.overhead_bytes for row in rows], dtype=np.float64)
    columns = {
        "constant_bytes": np.ones(len(rows)),
        "bytes_per_sample": np.array([float(row.micro_batch) for row in rows]),
        "bytes_per_communicator": np.array(
            [float(row.num_communicators) for row in rows]
        ),
    }
    if not fit_communicators or number <= len(columns):
        del columns["bytes_per_communicator"]
    varying = {
        name: column
        for name, column in columns.items()
        if name == "constant_bytes" or np.ptp(column) > 0
    }
    terms, errors = without_negatives(varying, values)
    line = OverheadLine(**{name: round(term) for name, term in terms.items()})
    width = math.ceil(half_width(errors, number, len(terms), values))
    return replace(line, residual_bytes=max(width, *(distance(line, r) for r in rows)))


def distance(line: OverheadLine, row: OverheadRow) -> int:
    """Distance of a row from a line."""
    expected = line.at(row.micro_batch, row.num_communicators).expected_bytes
    return abs(row.overhead_bytes - expected)


def without_negatives(
    columns: dict[str, NDArray[np.float64]], values: NDArray[np.float64]
) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Least-squares terms and errors, without the terms that come out negative.

    The most negative one is left out and the rest fitted again, until none is.
    """
    while True:
        matrix = np.stack(list(columns.values()), axis=1)
        found = np.linalg.lstsq(matrix, values, rcond=None)[0]
        terms = dict(zip(columns, map(float, found), strict=True))
        worst = min(terms, key=lambda name: terms[name])
        if terms[worst] >= 0 or len(terms) == 1:
            kept = {name: max(term, 0.0) for name, term in terms.items()}
            return kept, values - matrix @ np.array(list(kept.values()))
        columns = {name: c for name, c in columns.items() if name != worst}


def half_width(
    errors: NDArray[np.float64],
    number: int,
    num_terms: int,
    values: NDArray[np.float64],
) -> float:
    """Half-width of the prediction interval; see the module's text."""
    freedom = number - num_terms
    if freedom <= 0:
        return WITHOUT_ERROR * float(values.max())
    s = math.sqrt(float(errors @ errors) / len(errors) * number / freedom)
    quantile = STUDENT_T[freedom - 1] if freedom <= len(STUDENT_T) else NORMAL_QUANTILE
    return quantile * s * math.sqrt(1 + 1 / number)
