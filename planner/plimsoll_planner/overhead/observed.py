"""Bytes on a device besides tensors, from ranks that ran and ranks that ran out.

In: for one overhead key, what ranks held beside what was predicted, and shortages of
device memory. Out: a `DeviceOverhead`, or None without evidence. Called by the store,
each time that an attempt has ended. With the peak of a rank's fullest phase,

    allocator line   fits   reserved - allocated
    outside line     fits   device - reserved + max(0, allocated - predicted allocated)

so that what a prediction was too low by is allowed for as well. `calibration` fits, and
takes as independent the plans, not the ranks: those of one plan are nearly copies, and
so is a plan that is trained again. It holds for observed places alone: the overhead
names them, and beyond them the assumptions count (`allowance`). A line that comes with
Plimsoll stays for as long as no rank contradicts it.

A shortage is a plan that was predicted to fit and did not. With U bytes in use, A asked
for, a planned capacity C and T the upper bound of the allocated bytes, the overhead may
be as large as

    U + A >  C   the formula was too low      U + A - T
    U + A <= C   the device has less than C   C - U, and at least C + 1 - T
    U unknown    nobody knows                 C + 1 - T

and the residual of the outside line grows until the upper bound reaches that: of both
lines, and on a GPU of the share of T that is assumed beside them (an emulated device
has none; its overhead comes with Plimsoll). In all cases T and the overhead exceed C:
the plan is not predicted to fit again. A plan that a person fixed, and that was not
predicted to fit, teaches nothing by running out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from plimsoll_planner.overhead import assumed
from plimsoll_planner.overhead.allowance import (
    PERMILLE,
    key_of,
    mesh_around,
    num_communicators,
    share_permille,
)
from plimsoll_planner.overhead.built_in import BUILT_IN
from plimsoll_planner.overhead.calibration import OverheadRow, fit_line
from plimsoll_planner.records.bounds import Bytes, Count, Index
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
    SeenAt,
)
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.plan import HybridPlan, device_upper_bytes
from plimsoll_planner.records.record import Record

FEWEST_RANKS = 8
"""Fewer are no evidence against the built-in lines, which rest on hundreds. The
assumption for a GPU is so wide that the first rank is the better guess."""
GRANULARITY = OverheadLine(residual_bytes=20 * 2**20)
"""No line is known better: torch's allocator takes 20 MiB of a GPU at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedRank:
    """Bytes of a rank in its fullest phase."""

    attempt: str
    """Id of its attempt."""
    micro_batch: int
    num_communicators: int
    predicted_allocated_bytes: int
    """Expected."""
    allocated_bytes: int
    reserved_bytes: int
    device_bytes: int

    @property
    def fragmented_bytes(self) -> int:
        """Bytes that the allocator took beside the tensors."""
        return self.reserved_bytes - self.allocated_bytes

    @property
    def outside_bytes(self) -> int:
        """Bytes outside the allocator, or beyond the prediction."""
        beyond = max(0, self.allocated_bytes - self.predicted_allocated_bytes)
        return self.device_bytes - self.reserved_bytes + beyond


@dataclass(frozen=True, kw_only=True, slots=True)
class Shortage(Record):
    """A rank that ran out of device memory, though its plan was predicted to fit."""

    key: OverheadKey
    micro_batch: Count
    num_communicators: Index
    capacity_bytes: Bytes
    """That the plan was made for, less the headroom."""
    in_use_bytes: Bytes
    """Of tensors, when it ran out; the prediction if it is not known."""
    asked_bytes: Bytes
    """In vain; 0 if the allocator does not report it."""
    predicted_allocated_bytes: Bytes
    """Upper bound, in the phase whose device bytes are largest."""
    predicted_device_bytes: Bytes
    """Upper bound."""

    @property
    def is_surprise(self) -> bool:
        """Whether the rank was predicted to fit: else nothing is learned from it."""
        return self.predicted_device_bytes <= self.capacity_bytes

    @property
    def least_overhead_bytes(self) -> int:
        """Least bytes that the upper bound must reach; see the module's text.

        It is never more than leaves nothing for tensors, whatever was asked for.
        """
        wanted = self.in_use_bytes + self.asked_bytes
        beyond = max(wanted, self.capacity_bytes + 1) - self.predicted_allocated_bytes
        if wanted <= self.capacity_bytes:
            beyond = max(beyond, self.capacity_bytes - self.in_use_bytes)
        return min(beyond, self.capacity_bytes + 1)


def unreported_shortage(
    plan: HybridPlan, limits: Limits, rank: int | None = None
) -> Shortage:
    """Observation of a rank that ran out of memory before it reported.

    As little as can be: its device has not what the plan promised. What ran there is
    known from the plan; the version of NCCL, which only ranks report, is left open.

    Args:
        plan: of record, so with its prediction.
        limits: on the memory in use.
        rank: that ran out; None: somebody, and the fullest is the least to be learned.
    """
    stages = plan.stages if rank is None else (plan.stage_of(rank),)
    peaks = ((stage, peak) for stage in stages if (peak := stage.peak()))
    stage, peak = max(peaks, key=lambda pair: device_upper_bytes(pair[1]))
    offer = plan.offers[stage.offer]
    mesh = mesh_around(plan, stage)
    return Shortage(
        key=key_of(offer, plan.fingerprint),
        micro_batch=plan.micro_batch,
        num_communicators=num_communicators(mesh, 0)[0],
        capacity_bytes=limits.usable_bytes(offer.device_memory_bytes),
        in_use_bytes=peak.allocated.upper_bytes,
        asked_bytes=0,
        predicted_allocated_bytes=peak.allocated.upper_bytes,
        predicted_device_bytes=peak.device.upper_bytes,
    )


def observed_overhead(
    key: OverheadKey, ranks: Sequence[ObservedRank], shortages: Sequence[Shortage]
) -> DeviceOverhead | None:
    """Overhead of a key; None without evidence.

    Few ranks are no evidence for an emulated device; shortages count at once.
    """
    is_enough = len(ranks) >= (FEWEST_RANKS if built_in(key) else 1)
    if not is_enough and not shortages:
        return None
    found = learned(key, ranks) if is_enough else unobserved(key)
    for shortage in shortages:
        found = widened(found, shortage)
    return found


def learned(key: OverheadKey, ranks: Sequence[ObservedRank]) -> DeviceOverhead:
    """Overhead from enough ranks: the built-in line, or one of their own."""
    known = built_in(key)
    if known is not None and all(is_allowed_for(rank, known) for rank in ranks):
        return replace(
            known,
            num_observations=known.num_observations + len(ranks),
            num_plans=known.num_plans + num_plans(ranks),
        )
    allocator = fitted(ranks, [rank.fragmented_bytes for rank in ranks])
    outside = fitted(ranks, [rank.outside_bytes for rank in ranks])
    places = {(rank.micro_batch, rank.num_communicators) for rank in ranks}
    return DeviceOverhead(
        key=key,
        allocator=no_narrower(allocator, known.allocator if known else GRANULARITY),
        outside=no_narrower(outside, known.outside if known else GRANULARITY),
        num_observations=len(ranks),
        num_plans=num_plans(ranks),
        seen=tuple(
            SeenAt(micro_batch=b, num_communicators=c) for b, c in sorted(places)
        ),
        most_allocated_bytes=max(rank.allocated_bytes for rank in ranks),
    )


def num_plans(ranks: Sequence[ObservedRank]) -> int:
    """Count the plans that differ in what their ranks were to hold."""
    found: dict[str, set[tuple[int, int, int]]] = {}
    for rank in ranks:
        like = rank.micro_batch, rank.num_communicators, rank.predicted_allocated_bytes
        found.setdefault(rank.attempt, set()).add(like)
    return len(set(map(frozenset, found.values())))


def fitted(ranks: Sequence[ObservedRank], values: Sequence[int]) -> OverheadLine:
    """Line through one number of each rank."""
    rows = [
        OverheadRow(
            micro_batch=rank.micro_batch,
            num_communicators=rank.num_communicators,
            overhead_bytes=value,
        )
        for rank, value in zip(ranks, values, strict=True)
    ]
    return fit_line(rows, num_independent=num_plans(ranks))


def no_narrower(line: OverheadLine, other: OverheadLine) -> OverheadLine:
    """Line whose residual is at least that of another."""
    return replace(line, residual_bytes=max(line.residual_bytes, other.residual_bytes))


def built_in(key: OverheadKey) -> DeviceOverhead | None:
    """Built-in overhead of the product of a key."""
    mine = (one for one in BUILT_IN if one.key.device_product == key.device_product)
    return next((replace(one, key=key) for one in mine), None)


def is_allowed_for(rank: ObservedRank, overhead: DeviceOverhead) -> bool:
    """Whether a rank held as much as an overhead allows."""
    at = rank.micro_batch, rank.num_communicators
    pairs = (
        (overhead.allocator.at(*at), rank.fragmented_bytes),
        (overhead.outside.at(*at), rank.outside_bytes),
    )
    return all(line.lower_bytes <= held <= line.upper_bytes for line, held in pairs)


def unobserved(key: OverheadKey) -> DeviceOverhead:
    """Lines that hold where too few ranks were observed."""
    return built_in(key) or DeviceOverhead(
        key=key,
        allocator=assumed.ALLOCATOR,
        outside=assumed.OUTSIDE,
        num_observations=0,
    )


def widened(overhead: DeviceOverhead, shortage: Shortage) -> DeviceOverhead:
    """Overhead whose upper bound is such that the shortage is no surprise.

    Nothing else of it changes, so that no bound is looser for it.
    """
    outside = overhead.outside
    at = (shortage.micro_batch, shortage.num_communicators)
    allowed = overhead.allocator.at(*at).upper_bytes + outside.at(*at).upper_bytes
    if built_in(overhead.key) is None:  # then it is no emulated device
        tensors = shortage.predicted_allocated_bytes
        shared = max(0, tensors - overhead.most_allocated_bytes)
        allowed += shared * share_permille(overhead)[-1] // PERMILLE
    missing = max(0, shortage.least_overhead_bytes - allowed)
    return replace(
        overhead,
        outside=replace(outside, residual_bytes=outside.residual_bytes + missing),
        num_shortages=overhead.num_shortages + 1,
    )
