"""The unit that makes sums of seconds exact: 2^-32 s, a quarter of a nanosecond.

Sums and whole multiples of ticks are exact in floating point up to 2^21 s (24 days), in
whatever order they are formed. So equal plans have equal times, ties are real ties, and
a lower bound that is a partial sum of a walk is never above it by rounding.
"""

from __future__ import annotations

import math

TICKS_PER_S = 2**32


def down(seconds: float) -> float:
    """Round down to whole ticks."""
    return math.floor(seconds * TICKS_PER_S) / TICKS_PER_S


def nearest(seconds: float) -> float:
    """Round to whole ticks."""
    return round(seconds * TICKS_PER_S) / TICKS_PER_S


def up(seconds: float) -> float:
    """Round up to whole ticks."""
    return math.ceil(seconds * TICKS_PER_S) / TICKS_PER_S
