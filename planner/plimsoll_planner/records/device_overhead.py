"""Bytes on a device besides tensors, as a calibrated line with its error.

    bytes = constant + per_sample * micro-batch + per_communicator * communicators

It is no constant: on measured rows what a good tensor formula leaves over grows with
the micro-batch, and each communicator costs buffers of its own. The key says for which
device and software the numbers hold, `seen` and `most_allocated_bytes` how far they do
(`overhead.allowance`).
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.records.bounds import (
    Bytes,
    Count,
    Index,
    Label,
    Name,
    RelativeError,
)
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class OverheadKey(Record):
    """Circumstances besides the plan that the overhead depends on."""

    device_product: Name
    image: Label = ""
    torch_version: Name
    nccl_version: Label = ""
    """Empty where no NCCL is used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OverheadLine(Record):
    """One line; see the module's text."""

    constant_bytes: Bytes = 0
    bytes_per_sample: Bytes = 0
    bytes_per_communicator: Bytes = 0
    residual_bytes: Bytes = 0
    """How far an observation may be from the line."""
    relative_error: RelativeError = 0.0
    """Widens the interval in proportion to the value."""

    def at(self, micro_batch: int, num_communicators: int) -> ByteInterval:
        """Bytes for a micro-batch of samples and a number of communicators."""
        value = (
            self.constant_bytes
            + self.bytes_per_sample * micro_batch
            + self.bytes_per_communicator * num_communicators
        )
        return ByteInterval.around(value, self.residual_bytes, self.relative_error)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenAt(Record):
    """Place of observed ranks: no evidence for ranks that had more."""

    micro_batch: Count
    num_communicators: Index


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceOverhead(Document):
    """From allocated to reserved to device bytes: always three numbers, never mixed."""

    key: OverheadKey
    allocator: OverheadLine
    """Reserved minus allocated: rounding, caching, fragmentation."""
    outside: OverheadLine
    """Device minus reserved: context, communicators, workspaces of libraries."""
    num_observations: Index
    """How many measured ranks stand behind the two lines; 0 is an assumption."""
    num_plans: Index = 0
    """How many different plans those trained by: ranks of one are nearly copies."""
    num_shortages: Index = 0
    """Ranks that ran out of device memory: the lines are wider for them."""
    is_warned: bool = False
    """The lines are wider for what other namespaces saw (`other_namespaces`)."""
    seen: tuple[SeenAt, ...] = ()
    """Places of the measured ranks; empty if the lines hold everywhere."""
    most_allocated_bytes: Bytes = 0
    """The most tensors of theirs; 0 where the lines hold for any number."""

    def check_rules(self) -> None:
        """Each place is named once."""
        self.require_distinct("seen", self.seen)

    def seen_above(self, micro_batch: int, num_communicators: int) -> bool:
        """Whether ranks were observed that had no less of either."""
        return not self.seen or any(
            at.micro_batch >= micro_batch and at.num_communicators >= num_communicators
            for at in self.seen
        )
