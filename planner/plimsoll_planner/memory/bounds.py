"""Which of the three numbers of an interval is meant, and arrays of numbers."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.records.interval import ByteInterval

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Values = Ints | Floats


class Bound(StrEnum):
    """Which of the three numbers of an interval is meant."""

    LOWER = "lower"
    EXPECTED = "expected"
    UPPER = "upper"


def bytes_at(interval: ByteInterval, bound: Bound) -> int:
    """One of the three numbers."""
    match bound:
        case Bound.LOWER:
            return interval.lower_bytes
        case Bound.EXPECTED:
            return interval.expected_bytes
        case Bound.UPPER:
            return interval.upper_bytes
