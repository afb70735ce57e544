"""Memory against speed for one number of devices: the curve, point by point.

A slower step lets stages hold fewer micro-batches in flight and recompute more, so that
each device needs less memory. In an answer it stands beside the plan, if asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from plimsoll_planner.records.bounds import (
    Bytes,
    Count,
    DeviceBytes,
    GPUCount,
    Index,
    Seconds,
)
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.interval import SecondsInterval
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.record import Record
from plimsoll_planner.records.strategy import Mesh

NUM_SPEEDS = 12
"""Looked at unless asked otherwise."""
FEWEST_SPEEDS = 3
"""Both ends of a curve, and the plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontierPoint(Record):
    """A plan in short; on a curve no other one beats it in both memory and speed."""

    step_time: SecondsInterval
    peak_bytes: Bytes
    """Largest predicted upper bound on any device."""
    least_peak_bytes: Bytes
    """No plan as fast has a lower upper bound; 0 if that is not known."""
    mesh: Mesh
    micro_batch: Count
    """b, samples."""
    num_micro_batches: Count
    """M, for each replica and step."""
    cuts: tuple[Index, ...]
    """First layer of each stage."""
    num_recomputed: tuple[Index, ...]
    """Layers of each stage that recompute."""
    num_offloaded: tuple[Index, ...] = ()
    """Layers of each stage whose activations are in the memory of the machine between
    their passes; empty: none."""
    in_flight_caps: tuple[Count, ...]
    """Micro-batches in flight of each stage."""
    shardings: tuple[Sharding, ...]
    """Of each stage."""
    optimizer_homes: tuple[OptimizerHome, ...]
    """Of each stage."""

    def check_rules(self) -> None:
        """A bound is not above what was found; every column has all stages."""
        if self.least_peak_bytes > self.peak_bytes:
            rule = f"at most peak_bytes, {self.peak_bytes}"
            raise self.refuse("least_peak_bytes", rule)
        of_stages = ["cuts", "num_recomputed", "in_flight_caps"]
        of_stages += ["num_offloaded"] if self.num_offloaded else []
        for field in (*of_stages, "shardings", "optimizer_homes"):
            found = len(getattr(self, field))
            if found != self.mesh.pipeline:
                rule = f"{self.mesh.pipeline} entries, one for each stage"
                raise self.refuse(field, rule, found)

    @classmethod
    def of(cls, plan: HybridPlan, least_peak_bytes: int) -> FrontierPoint:
        """Point of a plan whose peaks and seconds are predicted."""
        if plan.mesh is None or plan.step_time is None or plan.peak_bytes is None:
            raise plan.refuse("stages", "equal degrees, peaks and seconds on a curve")
        return cls(
            step_time=plan.step_time,
            peak_bytes=plan.peak_bytes,
            least_peak_bytes=min(least_peak_bytes, plan.peak_bytes),
            mesh=plan.mesh,
            micro_batch=plan.micro_batch,
            num_micro_batches=plan.num_micro_batches,
            cuts=tuple(stage.chunks[0].first_layer for stage in plan.stages),
            num_recomputed=tuple(len(stage.recomputed_layers) for stage in plan.stages),
            num_offloaded=tuple(len(stage.offloaded_layers) for stage in plan.stages),
            in_flight_caps=tuple(stage.in_flight_cap for stage in plan.stages),
            shardings=tuple(stage.sharding for stage in plan.stages),
            optimizer_homes=tuple(stage.optimizer_home for stage in plan.stages),
        )

    @property
    def samples_per_s(self) -> float:
        """Expected throughput; 0 if a step takes no time."""
        step_s = self.step_time.expected_s
        samples = self.mesh.data * self.micro_batch * self.num_micro_batches
        return samples / step_s if step_s else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Frontier(Record):
    """The least peak of all plans of a number of devices, speed by speed.

    Between two points the slower one needs less, and at speeds between both the faster
    one is the best that was found.
    """

    num_gpus: GPUCount
    capacity_bytes: DeviceBytes
    """Memory of each device, less the headroom; no point is above it."""
    points: tuple[FrontierPoint, ...]
    """The fastest first: steps rise, peaks fall."""
    search_s: Seconds
    """Wall seconds that it took."""

    def check_rules(self) -> None:
        """The points are a curve, of plans that fit."""
        if not self.points:
            raise self.refuse("points", "at least one point")
        for point in self.points:
            if point.mesh.num_gpus != self.num_gpus:
                rule = f"meshes of {self.num_gpus} devices"
                raise self.refuse("points", rule, str(point.mesh))
        if self.points[0].peak_bytes > self.capacity_bytes:
            rule = f"peaks of at most capacity_bytes, {self.capacity_bytes}"
            raise self.refuse("points", rule, self.points[0].peak_bytes)
        for faster, slower in pairwise(self.points):
            if slower.step_time.expected_s < faster.step_time.expected_s:
                rule = "steps that do not fall"
                raise self.refuse("points", rule, slower.step_time.expected_s)
            if slower.peak_bytes >= faster.peak_bytes:
                raise self.refuse("points", "peaks that fall", slower.peak_bytes)
