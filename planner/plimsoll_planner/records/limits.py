"""The part of the space of plans that a search may use."""

from __future__ import annotations

import math
from dataclasses import dataclass

from plimsoll_planner.records.bounds import Count, Fraction, GPUCount, Index
from plimsoll_planner.records.engine import OptimizerHome, Schedule, Sharding
from plimsoll_planner.records.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits(Record):
    """The part of the space that the search may use."""

    max_gpus: GPUCount
    """Counts from 1 to this are searched, every one of them."""
    headroom: Fraction = 0.0
    """Of the device memory, kept free on every device."""
    pipeline_degrees: tuple[Count, ...] = ()
    """Empty: any."""
    data_degrees: tuple[Count, ...] = ()
    """Empty: any."""
    tensor_degrees: tuple[Count, ...] = ()
    """Empty: any that the engine runs and the profile has."""
    schedules: tuple[Schedule, ...] = ()
    """Empty: any that the engine runs."""
    shardings: tuple[Sharding, ...] = tuple(Sharding)
    """Levels that each stage may have; what cannot be divided is whole under all."""
    optimizer_homes: tuple[OptimizerHome, ...] = tuple(OptimizerHome)
    """Where the optimizer state of each stage may be."""
    in_flight_caps: bool = True
    """Stages may hold fewer micro-batches in flight than the schedule lets them, if the
    engine can."""
    offload: bool = True
    """Activations of layers may be in the memory of the machine between their passes,
    if the engine can."""
    max_micro_batch: Count | None = None
    whole_nodes: bool = False
    """Count and pay whole nodes, as an autoscaler would start them: `MinimizeGPUs`
    makes their devices fewest, `MinimizeCost` prices them anyway, others refuse it."""
    max_tuples: Index | None = None
    """Work limit: (offer, P, D, T, sequences, b) tuples that may be searched."""

    def usable_bytes(self, device_memory_bytes: int) -> int:
        """Bytes that a plan may use of a device, rounded down."""
        return int(device_memory_bytes * (1 - self.headroom))

    def check_rules(self) -> None:
        """Something is left to search."""
        for field in ("shardings", "optimizer_homes"):
            if not getattr(self, field):
                raise self.refuse(field, "at least one entry")
        names = ("pipeline_degrees", "data_degrees", "tensor_degrees")
        given = {name: allowed for name in names if (allowed := getattr(self, name))}
        least = math.prod(map(min, given.values()))
        if least > self.max_gpus:
            rule = f"at least {least}, which {' and '.join(given)} need"
            raise self.refuse("max_gpus", rule)
        if self.headroom == 1:
            raise self.refuse("headroom", "below 1, which leaves no memory at all")
