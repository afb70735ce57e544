"""The answer that is launched: which rank holds which layers, and at what peak."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from plimsoll_planner.records.bounds import Bytes, Count, Currency, Index, Name, Price
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.engine import OptimizerHome, Schedule, Sharding
from plimsoll_planner.records.interval import ByteInterval, SecondsInterval
from plimsoll_planner.records.model_profile import Fingerprint, OptimizerMode, Variant
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.placement_plan import PlacementPlan
from plimsoll_planner.records.record import Record
from plimsoll_planner.records.strategy import Mesh


class Phase(StrEnum):
    """Phase in the life of a rank in which a peak stands."""

    BUILD = "build"
    FIRST_STEP = "first-step"
    FORWARD = "forward"
    BACKWARD = "backward"
    LOSS = "loss"
    GRADIENT_NORM = "gradient-norm"
    OPTIMIZER_STEP = "optimizer-step"
    EVALUATION = "evaluation"
    CHECKPOINT_SAVE = "checkpoint-save"
    CHECKPOINT_RESTORE = "checkpoint-restore"
    MIGRATION = "migration"


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk(Record):
    """A run of layers in the profile's order; `end_layer` is not part of it."""

    first_layer: Index
    end_layer: Count

    def check_rules(self) -> None:
        """A chunk holds at least one layer."""
        if self.end_layer <= self.first_layer:
            raise self.refuse("end_layer", f"above first_layer {self.first_layer}")

    def holds(self, layer: int) -> bool:
        """Whether a layer is in the chunk."""
        return self.first_layer <= layer < self.end_layer


@dataclass(frozen=True, kw_only=True, slots=True)
class PhasePeak(Record):
    """Predicted peak of one rank in one phase; allocated <= reserved <= device."""

    phase: Phase
    allocated: ByteInterval
    """Tensors."""
    reserved: ByteInterval
    """Bytes that the allocator took from the device."""
    device: ByteInterval
    """All of it; this decides whether a rank runs out of memory."""

    def check_rules(self) -> None:
        """Tensors lie inside what is reserved, and that inside the device's use."""
        for bound in ("lower_bytes", "expected_bytes", "upper_bytes"):
            for inner, outer in (("allocated", "reserved"), ("reserved", "device")):
                least = getattr(getattr(self, inner), bound)
                found = getattr(getattr(self, outer), bound)
                if found < least:
                    rule = f"at least the {inner} {least} bytes"
                    raise self.refuse(f"{outer}.{bound}", rule, found)


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
    optimizer_home: OptimizerHome = OptimizerHome.DEVICE
    host_bytes: Bytes = 0
    """Of tensors that each rank holds in the memory of its machine, at most."""
    recomputed_layers: tuple[Index, ...] = ()
    offloaded_layers: tuple[Index, ...] = ()
    """Layers whose activations are in the memory of the machine between their passes,
    or their inputs, if they recompute."""
    offloaded_bytes: Bytes = 0
    """Of those, at most; a part of `host_bytes`."""
    in_flight_cap: Count
    """Most chunks of micro-batches whose activations the stage holds at a time."""
    peaks: tuple[PhasePeak, ...] = ()
    """Of every rank of the stage, by phase; the ranks of one stage are alike."""
    passes: SecondsInterval | None = None
    """Seconds of a rank in all forward and backward passes of a step; null: unknown."""

    def check_rules(self) -> None:
        """The group has the size of its degrees; a stage recomputes its own layers."""
        if not self.chunks:
            raise self.refuse("chunks", "at least one chunk")
        size = self.data_degree * self.variant.tensor_degree
        if len(self.ranks) != size:
            rule = f"{size} ranks: data degree times tensor degree"
            raise self.refuse("ranks", rule)
        for name in ("recomputed_layers", "offloaded_layers"):
            layers = getattr(self, name)
            for layer in layers:
                if not any(chunk.holds(layer) for chunk in self.chunks):
                    raise self.refuse(name, "layers of the stage", layer)
            self.require_distinct(name, layers)
        self.require_distinct("peaks", (peak.phase for peak in self.peaks))
        self._check_ways()
        if self.sharding is not Sharding.NONE and self.data_degree == 1:
            raise self.refuse("sharding", "none, where the data degree is 1")
        if self.host_bytes and not self.uses_host:
            raise self.refuse("host_bytes", "0, where nothing is on the host")
        most = self.host_bytes if self.offloaded_layers else 0
        if self.offloaded_bytes > most:
            raise self.refuse("offloaded_bytes", f"at most {most}")

    def _check_ways(self) -> None:
        """Layers that are not kept are all run in one way."""
        again, away = set(self.recomputed_layers), set(self.offloaded_layers)
        if again and away and again != away:
            rule = "all layers that recompute, or none where others do"
            raise self.refuse("offloaded_layers", rule, self.offloaded_layers)

    @property
    def not_kept(self) -> tuple[int, ...]:
        """Layers whose activations do not stay on the device."""
        return tuple(sorted({*self.recomputed_layers, *self.offloaded_layers}))

    @property
    def steps_on_host(self) -> bool:
        """Whether its optimizer is in the memory of the machine."""
        return self.optimizer_home is OptimizerHome.HOST

    @property
    def uses_host(self) -> bool:
        """Whether tensors of its ranks are there."""
        return self.steps_on_host or bool(self.offloaded_layers)

    def peak(self) -> PhasePeak | None:
        """The phase whose device upper bound is largest; None without a prediction."""
        return max(self.peaks, key=device_upper_bytes, default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class PodShape(Record):
    """How the ranks are packed: equal pods, a tensor group never leaves one."""

    num_pods: Count
    gpus_per_pod: Count
    host_memory_bytes_per_pod: Bytes
    """Of the machine, not of its devices: what the pod asks for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridPlan(Document):
    """Pipeline, data and tensor parallelism for one job.

    Legend: G GPUs, P stages, D data-parallel degree, T tensor degree, b samples in a
    micro-batch, M micro-batches for each replica and step: global batch = D * b * M.
    """

    fingerprint: Fingerprint
    """Of the profile that the plan was made from."""
    revision: Count = 1
    """Counts changes that keep the world and its groups."""
    global_batch_size: Count
    """Samples in one step of all replicas."""
    micro_batch: Count
    """b, samples."""
    num_micro_batches: Count
    """M, for each replica and step."""
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
    placement: PlacementPlan | None = None
    """Devices of operators, in the place of layers: its device k is stage k."""

    @property
    def num_gpus(self) -> int:
        """G."""
        return sum(len(stage.ranks) for stage in self.stages)

    @property
    def num_nodes(self) -> int:
        """Nodes that hold the pods."""
        on_node = self.offers[0].devices_per_node // self.pods.gpus_per_pod
        return -(-self.pods.num_pods // on_node)

    @property
    def fullest_rank(self) -> int:
        """First rank of the stage with the largest predicted upper bound."""

        def upper_bytes(stage: Stage) -> int:
            peak = stage.peak()
            return 0 if peak is None else device_upper_bytes(peak)

        return max(self.stages, key=upper_bytes).ranks[0]

    def stage_of(self, rank: int) -> Stage:
        """Stage that a rank is of."""
        return next(stage for stage in self.stages if rank in stage.ranks)

    @property
    def mesh(self) -> Mesh | None:
        """Degrees, None if the stages differ."""
        degrees = {(s.data_degree, s.variant.tensor_degree) for s in self.stages}
        if len(degrees) > 1:
            return None
        data, tensor = degrees.pop()
        return Mesh(pipeline=len(self.stages), data=data, tensor=tensor)

    @property
    def peak_bytes(self) -> int | None:
        """Largest predicted upper bound on any device; None without a prediction."""
        peaks = [peak for stage in self.stages if (peak := stage.peak())]
        return max(map(device_upper_bytes, peaks), default=None)

    @property
    def samples_per_s(self) -> float | None:
        """Expected throughput; None without a prediction."""
        if self.step_time is None or self.step_time.expected_s == 0:
            return None
        return self.global_batch_size / self.step_time.expected_s

    def check_rules(self) -> None:
        """Every layer and every rank has one place, and the numbers multiply."""
        if not self.stages:
            raise self.refuse("stages", "at least one stage")
        if max(stage.offer for stage in self.stages) >= len(self.offers):
            raise self.refuse("offers", "an entry for the offer of every stage")
        if len({offer.device_kind for offer in self.offers}) > 1:
            raise self.refuse("offers", "devices of one kind")
        ranks = sorted(rank for stage in self.stages for rank in stage.ranks)
        if ranks != list(range(len(ranks))):
            raise self.refuse("stages", "every rank from 0 on exactly once", ranks)
        if (self.price_per_hour is None) != (self.currency is None):
            raise self.refuse("currency", "given exactly where price_per_hour is")
        self._check_chunks()
        self._check_pods()
        self._check_placement()
        for place, stage in enumerate(self.stages):
            self._check_batch(stage, f"stages[{place}]")

    def _check_chunks(self) -> None:
        """Chunks join without a gap, in the order that the schedule visits them."""
        chunks = [chunk for stage in self.stages for chunk in stage.chunks]
        if len({len(stage.chunks) for stage in self.stages}) > 1:
            raise self.refuse("stages", "as many chunks on each stage")
        if self.schedule in ONE_CHUNK and len(chunks) > len(self.stages):
            raise self.refuse(
                "stages", f"one chunk on each stage under {self.schedule}"
            )
        if self.schedule not in ONE_CHUNK:
            chunks.sort(key=lambda chunk: chunk.first_layer)
        end = 0
        for chunk in chunks:
            if chunk.first_layer != end:
                rule = f"every layer exactly once, in order; next is layer {end}"
                raise self.refuse("stages", rule, chunk.first_layer)
            end = chunk.end_layer

    def _check_pods(self) -> None:
        """Equal pods that fit a node, with whole tensor groups."""
        per_pod = self.pods.gpus_per_pod
        if self.pods.num_pods * per_pod != self.num_gpus:
            raise self.refuse("pods", f"pods that hold {self.num_gpus} GPUs together")
        for stage in self.stages:
            on_node = self.offers[stage.offer].devices_per_node
            if per_pod > on_node:
                rule = f"at most {on_node}, the devices of a node"
                raise self.refuse("pods.gpus_per_pod", rule, per_pod)
            if per_pod % stage.variant.tensor_degree:
                rule = f"a multiple of the tensor degree {stage.variant.tensor_degree}"
                raise self.refuse("pods.gpus_per_pod", rule, per_pod)

    def _check_placement(self) -> None:
        """Operators are placed under the schedule of that name, on as many devices."""
        if (self.placement is None) != (self.schedule is not Schedule.PLACED):
            rule = f"given exactly where the schedule is {Schedule.PLACED}"
            raise self.refuse("placement", rule)
        if self.placement and self.placement.num_devices != len(self.stages):
            rule = f"one of {len(self.stages)} devices, as there are stages"
            raise self.refuse("placement.num_devices", rule, self.placement.num_devices)

    def _check_batch(self, stage: Stage, path: str) -> None:
        """Every replica of a stage computes its share of the global batch."""
        per_step = stage.data_degree * self.micro_batch * self.num_micro_batches
        if per_step != self.global_batch_size:
            rule = f"D * b * M equal to the global batch {self.global_batch_size}"
            raise self.refuse(f"{path}.data_degree", rule, stage.data_degree)
        most = self.num_micro_batches * len(stage.chunks)
        if stage.in_flight_cap > most:
            rule = f"at most {most}, which is all there are"
            raise self.refuse(f"{path}.in_flight_cap", rule, stage.in_flight_cap)


ONE_CHUNK = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.PLACED)
"""Schedules in which a stage is one run of layers."""
