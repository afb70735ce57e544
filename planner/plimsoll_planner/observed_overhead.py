"""What sits on a device besides tensors, from ranks that ran and ranks that ran out.

In: for one overhead key, what ranks held beside what was predicted, and shortages of
device memory. Out: a `DeviceOverhead`, or None where nothing is said yet. Called by the
store, each time that an attempt has ended. With the peak of a rank's fullest phase,

    allocator line   fits   reserved - allocated
    outside line     fits   device - reserved + max(0, allocated - predicted allocated)

so that what a prediction was too low by is allowed for as well. `calibration` fits.

A shortage is a plan that was predicted to fit and did not. With U bytes in use, A asked
for, a planned capacity C and T the upper bound of the allocated bytes, the overhead may
be as large as

    U + A >  C   the formula was too low      U + A - T
    U + A <= C   the device has less than C   C - U, and at least C + 1 - T

and the residual of the outside line grows until the upper bound of both lines says so.
In both cases T and the overhead exceed C: the plan is not predicted to fit again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from plimsoll_planner.calibration import OverheadRow, fit_line
from plimsoll_planner.memory.device_bytes import ASSUMED_OUTSIDE
from plimsoll_planner.overheads import BUILT_IN
from plimsoll_planner.records.bounds import Bytes, Count, Index
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
)
from plimsoll_planner.records.record import Record

FEWEST_RANKS = 8
"""Fewer observed ones say nothing yet: the spread of so few is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedRank:
    """What a rank held in its fullest phase."""

    micro_batch: int
    num_communicators: int
    predicted_allocated_bytes: int
    """Expected."""
    allocated_bytes: int
    reserved_bytes: int
    device_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Shortage(Record):
    """A rank that ran out of device memory, though its plan was predicted to fit."""

    key: OverheadKey
    micro_batch: Count
    num_communicators: Index
    capacity_bytes: Bytes
    """That the plan was made for, less the headroom."""
    in_use_bytes: Bytes
    """Of tensors, when it ran out."""
    asked_bytes: Bytes
    """In vain; 0 where the allocator does not say."""
    predicted_allocated_bytes: Bytes
    """Upper bound, in the phase whose device bytes are largest."""
    predicted_device_bytes: Bytes
    """Upper bound."""

    @property
    def least_overhead_bytes(self) -> int:
        """What the upper bound of the overhead must reach; see the module's text."""
        wanted = self.in_use_bytes + self.asked_bytes
        beyond = max(wanted, self.capacity_bytes + 1) - self.predicted_allocated_bytes
        if wanted <= self.capacity_bytes:
            beyond = max(beyond, self.capacity_bytes - self.in_use_bytes)
        return beyond


def observed_overhead(
    key: OverheadKey, ranks: Sequence[ObservedRank], shortages: Sequence[Shortage]
) -> DeviceOverhead | None:
    """Return the overhead of a key; None where nothing is said of it yet.

    Args:
        key: of all ranks and shortages.
        ranks: that finished a step.
        shortages: count at once, however few the ranks are.
    """
    is_fitted = len(ranks) >= FEWEST_RANKS
    if not is_fitted and not shortages:
        return None
    allocator, outside = fitted(ranks) if is_fitted else assumed(key)
    for shortage in shortages:
        outside = grown(allocator, outside, shortage)
    return DeviceOverhead(
        key=key,
        allocator=allocator,
        outside=outside,
        num_observations=len(ranks) * is_fitted + len(shortages),
    )


def fitted(ranks: Sequence[ObservedRank]) -> tuple[OverheadLine, OverheadLine]:
    """Return both lines through what ranks held."""

    def line(values: list[int]) -> OverheadLine:
        return fit_line(
            [
                OverheadRow(
                    micro_batch=rank.micro_batch,
                    num_communicators=rank.num_communicators,
                    overhead_bytes=value,
                )
                for rank, value in zip(ranks, values, strict=True)
            ]
        )

    return (
        line([rank.reserved_bytes - rank.allocated_bytes for rank in ranks]),
        line([outside_bytes(rank) for rank in ranks]),
    )


def outside_bytes(rank: ObservedRank) -> int:
    """Return what was outside the allocator, or beyond what was predicted."""
    beyond = max(0, rank.allocated_bytes - rank.predicted_allocated_bytes)
    return rank.device_bytes - rank.reserved_bytes + beyond


def assumed(key: OverheadKey) -> tuple[OverheadLine, OverheadLine]:
    """Return the lines that hold where too few ranks were observed."""
    for known in BUILT_IN:
        if known.key.device_product == key.device_product:
            return known.allocator, known.outside
    return OverheadLine(), ASSUMED_OUTSIDE


def grown(
    allocator: OverheadLine, outside: OverheadLine, shortage: Shortage
) -> OverheadLine:
    """Return the outside line, wide enough that the shortage is no surprise."""
    at = (shortage.micro_batch, shortage.num_communicators)
    allowed = allocator.at(*at).upper_bytes + outside.at(*at).upper_bytes
    missing = max(0, shortage.least_overhead_bytes - allowed)
    return replace(outside, residual_bytes=outside.residual_bytes + missing)
