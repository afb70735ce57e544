"""A kind of machine one can get: its devices, its links, its price.

The unit of a price is the whole node and hour, never the device: prices per device and
per node are easily confused, and what is bought is a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from plimsoll_planner.records.bounds import (
    Bytes,
    Count,
    Currency,
    DeviceBytes,
    Factor,
    Index,
    Label,
    Name,
    Price,
    Rate,
    Seconds,
)
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.model_profile import NUMBERS, DeviceKind, Precision
from plimsoll_planner.records.record import Record

EMULATED_PRODUCT = "process"
"""Product of every emulated device: a process whose tensors are counted."""


class CapacityType(StrEnum):
    """On which terms a node is had."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"


@dataclass(frozen=True, kw_only=True, slots=True)
class Link(Record):
    """Connection of two devices: seconds = latency + bytes / bandwidth."""

    bandwidth_bytes_per_s: Rate
    latency_s: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeRate(Record):
    """Peak arithmetic of one device in one precision."""

    precision: Precision
    flop_per_s: Rate

    def check_rules(self) -> None:
        """The precision is a type of numbers."""
        if self.precision not in NUMBERS:
            raise self.refuse("precision", f"one of {', '.join(NUMBERS)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer(Document):
    """A kind of machine one can get."""

    name: Name
    """Usual name of the machine: an instance type or a node pool."""
    region: Label = ""
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    device_kind: DeviceKind = DeviceKind.CUDA
    device_product: Name
    device_memory_bytes: DeviceBytes
    devices_per_node: Count
    concurrent_devices_per_node: Count | None = None
    """How many devices of a node compute at the same time; None: all of them, each on
    its own. Emulated devices share the cores of their machine, which also copy what
    they send each other."""
    crowded_slowdown: Factor = 1.0
    """How many times as long takes what begins while more devices of a node have work
    than compute at the same time: with each turn, caches are cold."""
    nodes_available: Index | None = None
    """How many nodes can be had; None where there is no known end."""
    price_per_node_hour: Price | None = None
    currency: Currency | None = None
    link_in_node: Link | None = None
    link_between_nodes: Link | None = None
    compute_rates: tuple[ComputeRate, ...] = ()
    memory_bandwidth_bytes_per_s: Rate | None = None
    host_memory_bytes: Bytes | None = None
    """Of a node, besides that of its devices; None: not known. Emulated devices have
    theirs from it."""
    link_to_host: Link | None = None
    """Between a device and the memory of its node, in either direction."""
    host_link_shared: bool = False
    """One such link for all devices of a node; else each has its own, and the bandwidth
    is that of a device while all of them use theirs."""

    def check_rules(self) -> None:
        """A price has a currency, a precision one rate."""
        if (self.price_per_node_hour is None) != (self.currency is None):
            raise self.refuse("currency", "given exactly where price_per_node_hour is")
        if self.crowded_slowdown > 1 and self.concurrent_devices_per_node is None:
            rule = "a number, where crowded_slowdown is given"
            raise self.refuse("concurrent_devices_per_node", rule)
        precisions = (rate.precision for rate in self.compute_rates)
        self.require_distinct("compute_rates", precisions)

    @property
    def identity(self) -> tuple[str, str, str]:
        """Key that distinguishes offers: name, region, terms."""
        return self.name, self.region, self.capacity_type

    def num_nodes(self, num_gpus: int, gpus_per_pod: int) -> int:
        """Nodes that equal pods of a plan take; whole ones are paid for."""
        pods_per_node = self.devices_per_node // gpus_per_pod
        return -(-(num_gpus // gpus_per_pod) // pods_per_node)

    @property
    def price_per_device_hour(self) -> Decimal | None:
        """Price of a node shared among its devices; to compare, not to buy."""
        price = self.price_per_node_hour
        return None if price is None else price / self.devices_per_node
