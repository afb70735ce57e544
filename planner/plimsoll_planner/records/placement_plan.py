"""Placement of an operator graph: which device runs which node, in one order.

All devices follow one order of all nodes. So what each of them holds depends on places
in that order and not on time, and peaks are exact; seconds are a prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import le

from plimsoll_planner.records.bounds import (
    Bytes,
    Count,
    DeviceBytes,
    Digest,
    Index,
    Label,
    Name,
    Seconds,
)
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class SendColumns(Record):
    """Entry i: a value that one device sends to another, once for all its uses there.

    It begins after the node at place `begin` of the order, on both devices, and both
    wait for its end after the node at place `end`. The sender is the device of the
    value's group.
    """

    node: tuple[Index, ...]
    """Whose value it is."""
    destination: tuple[Index, ...]
    """Device that receives it."""
    begin: tuple[Index, ...]
    end: tuple[Index, ...]
    num_bytes: tuple[Bytes, ...]


class ContributorKind(StrEnum):
    """Kind of bytes that an operator is the reason of."""

    VALUE = "value"
    RECEIVED = "received"
    TRANSIENT = "transient"


@dataclass(frozen=True, kw_only=True, slots=True)
class Contributor(Record):
    """One part of what a device holds at its peak."""

    name: Name
    num_bytes: Bytes
    kind: ContributorKind
    """Its value, a received copy of it, or a workspace or the copy that is sent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DevicePeak(Record):
    """Most that a device holds at a time, and what it is made of."""

    peak_bytes: Bytes
    place: Index
    """Place in the order; the number of nodes stands for the optimizer's step."""
    parameter_bytes: Bytes
    gradient_bytes: Bytes
    optimizer_bytes: Bytes
    value_bytes: Bytes
    """Of values that it made."""
    received_bytes: Bytes
    transient_bytes: Bytes
    """Workspaces, and copies of what is sent."""
    contributors: tuple[Contributor, ...] = ()
    """The largest of all but states, largest first."""

    @property
    def state_bytes(self) -> int:
        """Bytes that are there from step to step."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    def check_rules(self) -> None:
        """The parts are all of it."""
        parts = self.value_bytes + self.received_bytes + self.transient_bytes
        if self.state_bytes + parts != self.peak_bytes:
            rule = f"the sum of its parts, {self.state_bytes + parts} bytes"
            raise self.refuse("peak_bytes", rule, self.peak_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementBounds(Record):
    """Amounts that no placement of the graph on as many devices can be below."""

    states_bytes: Bytes
    """All states, spread evenly."""
    cut_bytes: Bytes
    """States, and values that are alive together in every order, spread evenly."""
    group_bytes: Bytes
    """Of the largest group, which stands on one device: its states beside its largest
    storage, or beside what the step of one of its parameters takes."""
    largest_group: Label
    """Name of a node of it."""
    node_bytes: Bytes
    """Of the node that needs most while it runs: inputs, results, workspace, states."""
    largest_node: Label
    critical_path_s: Seconds
    """Of the longest path of nodes, with nothing to send."""
    work_s: Seconds
    """All seconds, spread evenly."""

    @property
    def peak_bytes(self) -> int:
        """Lower bound of the largest peak."""
        return max(self.states_bytes, self.cut_bytes, self.group_bytes, self.node_bytes)

    @property
    def makespan_s(self) -> float:
        """Lower bound of the seconds of a step, its optimizer aside."""
        return max(self.critical_path_s, self.work_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementPlan(Document):
    """A placement of a graph on devices that are alike; found by a heuristic.

    That it fits is exact, for what each device holds follows from the order. That it
    does not fit proves nothing, unless a bound says so; nor is it the fastest.
    """

    graph_digest: Digest
    """Of the graph that was placed."""
    num_devices: Count
    capacity_bytes: DeviceBytes
    """Bytes for tensors on each device."""
    link: Link
    """Between any two devices, as it was assumed."""
    send_window: Count
    """Places of the order that a send may begin before its value is used."""
    method: Name
    """Which heuristic found it."""
    devices: tuple[Index, ...]
    """Of each group of the graph."""
    order: tuple[Index, ...]
    """All nodes, as all devices follow them."""
    sends: SendColumns
    peaks: tuple[DevicePeak, ...]
    """Of each device."""
    makespan_s: Seconds
    """Expected, of all nodes and sends, without the optimizer's step."""
    bounds: PlacementBounds
    verdict: Verdict

    @property
    def peak_bytes(self) -> int:
        """Largest peak of a device."""
        return max(peak.peak_bytes for peak in self.peaks)

    def check_rules(self) -> None:
        """Every node has a place, every send a way, and the verdict its reason."""
        self.require_distinct("order", self.order)
        if max(self.order, default=0) >= max(len(self.order), 1):
            rule = f"below {len(self.order)}, the number of nodes"
            raise self.refuse("order", rule, max(self.order))
        for field, found in (
            ("devices", self.devices),
            ("sends.destination", self.sends.destination),
        ):
            if found and max(found) >= self.num_devices:
                rule = f"below {self.num_devices}, the number of devices"
                raise self.refuse(field, rule, max(found))
        if len(self.peaks) != self.num_devices:
            rule = f"{self.num_devices} entries, one for each device"
            raise self.refuse("peaks", rule, len(self.peaks))
        self._check_sends()
        self._check_bounds()
        self._check_verdict()

    def _check_sends(self) -> None:
        """They end where they began or later, of nodes that there are."""
        sends, length = self.sends, len(self.order)
        sends.require_equal_lengths("node", of="send")
        for field in ("node", "end"):
            found = getattr(sends, field)
            if found and max(found) >= length:
                path = f"sends.{field}"
                raise self.refuse(path, f"below {length}, all nodes", max(found))
        if not all(map(le, sends.begin, sends.end)):
            pairs = zip(sends.begin, sends.end, strict=True)
            begin, end = next(pair for pair in pairs if pair[0] > pair[1])
            raise self.refuse("sends.end", f"at least {begin}, where it begins", end)

    def _check_verdict(self) -> None:
        """The exact peaks prove that it fits, and the bounds alone that none does."""
        expected = Verdict.UNDECIDED
        if self.peak_bytes <= self.capacity_bytes:
            expected = Verdict.FITS
        elif self.bounds.peak_bytes > self.capacity_bytes:
            expected = Verdict.FAILS
        if self.verdict is not expected:
            raise self.refuse("verdict", f"{expected}, by peaks and bounds")

    def _check_bounds(self) -> None:
        """No peak is below what no placement can be below."""
        if self.peak_bytes < self.bounds.peak_bytes:
            rule = f"a largest peak of at least {self.bounds.peak_bytes}, by its bounds"
            raise self.refuse("peaks", rule, self.peak_bytes)
