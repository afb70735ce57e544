"""The answer that is launched: which rank holds which layers, and at what peak."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from plimsoll_planner.records.bounds import (
    Bytes,
    Count,
    Currency,
    Digest,
    Index,
    Name,
    Price,
)
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.engine import Schedule, Sharding
from plimsoll_planner.records.interval import ByteInterval, SecondsInterval
from plimsoll_planner.records.model_profile import OptimizerMode, Variant
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.record import Record


class Phase(StrEnum):
    """Where in the life of a rank a peak stands (DESIGN: memory)."""

    BUILD = "build"
    FIRST_STEP = "first-step"
    FORWARD = "forward"
    BACKWARD = "backward"
    LOSS = "loss"
    GRADIENT_NORM = "gradient-norm"
    OPTIMIZER_STEP = "optimizer-step"
    CHECKPOINT_SAVE = "checkpoint-save"
    CHECKPOINT_RESTORE = "checkpoint-restore"


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk(Record):
    """A run of layers in the profile's order; `end_layer` is not part of it."""

    first_layer: Index
    end_layer: Count

    def check_rules(self) -> None:
        """A chunk holds at least one layer."""
        if self.end_layer <= self.first_layer:
            raise self.refuse("end_layer", f"above first_layer {self.first_layer}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PhasePeak(Record):
    """Predicted peak of one rank in one phase; allocated <= reserved <= device."""

    phase: Phase
    allocated: ByteInterval
    """Tensors."""
    reserved: ByteInterval
    """What the allocator took from the device."""
    device: ByteInterval
    """All of it; this decides whether a rank runs out of memory."""


def device_upper_bytes(peak: PhasePeak) -> int:
    """Order phases by what decides whether a rank runs out of memory."""
    return peak.device.upper_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage(Record):
    """One pipeline stage and the group of ranks that share it."""

    chunks: tuple[Chunk, ...]
    """One for each visit of the schedule; one in all but interleaved schedules."""
    ranks: tuple[Index, ...]
    """The ranks of the stage, tensor group by tensor group."""
    offer: Index
    """Which entry of the plan's `offers` the ranks run on."""
    variant: Variant = field(default_factory=Variant)
    data_degree: Count
    sharding: Sharding = Sharding.NONE
    recomputed_layers: tuple[Index, ...] = ()
    in_flight_cap: Count
    """Most micro-batches whose activations the stage holds at a time."""
    peaks: tuple[PhasePeak, ...] = ()
    """Of every rank of the stage, by phase."""

    def check_rules(self) -> None:
        """The group has the size that its degrees say; recompute stays at home."""
        if not self.chunks:
            raise self.refuse("chunks", "at least one chunk")
        size = self.data_degree * self.variant.tensor_degree
        if len(self.ranks) != size:
            rule = f"{size} ranks: data degree times tensor degree"
            raise self.refuse("ranks", rule)
        own = set(self.layers())
        for layer in self.recomputed_layers:
            if layer not in own:
                raise self.refuse("recomputed_layers", "layers of the stage", layer)
        if len({peak.phase for peak in self.peaks}) < len(self.peaks):
            raise self.refuse("peaks", "one peak for each phase")

    def layers(self) -> Iterable[int]:
        """Yield the layers that the stage holds, chunk by chunk."""
        for chunk in self.chunks:
            yield from range(chunk.first_layer, chunk.end_layer)

    def peak(self) -> PhasePeak | None:
        """The phase whose device upper bound is largest; None without a prediction."""
        return max(self.peaks, key=device_upper_bytes, default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class PodShape(Record):
    """How the ranks are packed: equal pods, a tensor group never leaves one."""

    num_pods: Count
    gpus_per_pod: Count
    host_memory_bytes_per_pod: Bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridPlan(Document):
    """Pipeline, data and tensor parallelism for one job.

    Legend: G GPUs, P stages, D data-parallel degree, T tensor degree, b samples in a
    micro-batch, M micro-batches for each replica and step: global batch = D * b * M.
    """

    fingerprint_digest: Digest
    """Digest of the fingerprint of the profile that the plan was made from."""
    revision: Count = 1
    """Counts changes that keep the world and its groups."""
    global_batch_size: Count
    micro_batch: Count
    num_micro_batches: Count
    schedule: Schedule
    engine: Name
    engine_version: Name
    """The traits that the peaks were predicted with; another version replays again."""
    optimizer_mode: OptimizerMode
    offers: tuple[Offer, ...]
    """The machines used; one kind in version 1."""
    stages: tuple[Stage, ...]
    pods: PodShape
    step_time: SecondsInterval | None = None
    price_per_hour: Price | None = None
    """Of all nodes together."""
    currency: Currency | None = None

    @property
    def num_gpus(self) -> int:
        """G."""
        return sum(len(stage.ranks) for stage in self.stages)

    def mesh(self) -> tuple[int, int, int] | None:
        """Return (P, D, T), or None where the stages differ."""
        degrees = {(s.data_degree, s.variant.tensor_degree) for s in self.stages}
        if len(degrees) > 1:
            return None
        return (len(self.stages), *degrees.pop())

    def check_rules(self) -> None:
        """Every layer and every rank has one place, and the numbers multiply."""
        if not self.stages:
            raise self.refuse("stages", "at least one stage")
        if max(stage.offer for stage in self.stages) >= len(self.offers):
            raise self.refuse("offers", "an entry for the offer of every stage")
        layers = [layer for stage in self.stages for layer in stage.layers()]
        if sorted(layers) != list(range(len(layers))):
            raise self.refuse("stages", "every layer from 0 on exactly once", layers)
        ranks = [rank for stage in self.stages for rank in stage.ranks]
        if sorted(ranks) != list(range(len(ranks))):
            raise self.refuse("stages", "every rank from 0 on exactly once", ranks)
        if self.pods.num_pods * self.pods.gpus_per_pod != self.num_gpus:
            raise self.refuse("pods", f"pods that hold {self.num_gpus} GPUs together")
        self._check_batch()

    def _check_batch(self) -> None:
        """Every replica of a stage computes its share of the global batch."""
        for place, stage in enumerate(self.stages):
            per_step = stage.data_degree * self.micro_batch * self.num_micro_batches
            if per_step != self.global_batch_size:
                path = f"stages[{place}].data_degree"
                rule = f"D * b * M equal to the global batch {self.global_batch_size}"
                raise self.refuse(path, rule, stage.data_degree)
