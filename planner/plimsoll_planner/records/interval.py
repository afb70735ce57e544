"""A predicted quantity is three numbers, never one.

`lower` and `upper` bound what may happen, `expected` is the best guess between them.
Feasibility is judged on the upper bound, failure on the lower one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from plimsoll_planner.records.bounds import LARGEST_INTEGER, Bytes, Seconds
from plimsoll_planner.records.record import Record


class Verdict(StrEnum):
    """Proof that an interval gives against a capacity."""

    FITS = "fits"
    """Even the upper bound is within the capacity."""
    FAILS = "fails"
    """Even the lower bound exceeds the capacity."""
    UNDECIDED = "undecided"
    """The interval straddles the capacity; never sold as a proof."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ByteInterval(Record):
    """Bytes with their lower and upper bound."""

    lower_bytes: Bytes
    expected_bytes: Bytes
    upper_bytes: Bytes

    def check_rules(self) -> None:
        """The three are in order."""
        if not self.lower_bytes <= self.expected_bytes <= self.upper_bytes:
            rule = f"between {self.lower_bytes} (lower) and {self.upper_bytes} (upper)"
            raise self.refuse("expected_bytes", rule)

    @classmethod
    def around(
        cls, value_bytes: int, residual_bytes: int, relative_error: float
    ) -> ByteInterval:
        """Interval (value -+ residual) * (1 -+ relative error), in whole bytes.

        What is above the largest number of bytes there is becomes that number.
        """
        low = max(value_bytes - residual_bytes, 0) * max(1 - relative_error, 0)
        high = (value_bytes + residual_bytes) * (1 + relative_error)
        return cls(
            lower_bytes=min(math.floor(low), LARGEST_INTEGER),
            expected_bytes=min(value_bytes, LARGEST_INTEGER),
            upper_bytes=min(math.ceil(high), LARGEST_INTEGER),
        )

    def verdict(self, capacity_bytes: int) -> Verdict:
        """Judge the interval against a capacity in bytes."""
        if self.upper_bytes <= capacity_bytes:
            return Verdict.FITS
        if self.lower_bytes > capacity_bytes:
            return Verdict.FAILS
        return Verdict.UNDECIDED


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondsInterval(Record):
    """Seconds with their lower and upper bound."""

    lower_s: Seconds
    expected_s: Seconds
    upper_s: Seconds

    def check_rules(self) -> None:
        """The three are in order."""
        if not self.lower_s <= self.expected_s <= self.upper_s:
            rule = f"between {self.lower_s} (lower) and {self.upper_s} (upper)"
            raise self.refuse("expected_s", rule)
