"""Memory of a training engine besides the mathematics, and the plans that it can run.

Differences between engines and their versions are data, not branches: the memory model
reads what is held, the search visits only what can run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from plimsoll_planner.records.bounds import Count, Fraction, Index, Name
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.record import Record


class Schedule(StrEnum):
    """Pipeline schedules, by the names of torch.distributed.pipelining."""

    GPIPE = "GPipe"
    ONE_F_ONE_B = "1F1B"
    INTERLEAVED_1F1B = "Interleaved1F1B"
    INTERLEAVED_ZERO_BUBBLE = "InterleavedZeroBubble"
    ZBV_ZERO_BUBBLE = "ZBVZeroBubble"
    DUAL_PIPE_V = "DualPipeV"
    PLACED = "Placed"
    """No pipeline: operators in one order, each on the device that it was placed on."""


class ReceiveBuffers(StrEnum):
    """How many buffers for received boundary tensors a stage holds."""

    ALL_MICRO_BATCHES = "all-micro-batches"
    """One for each micro-batch and direction, for good (torch 2.11 to 2.14)."""
    JUST_IN_TIME = "just-in-time"
    """One, shortly before each receive (torch 2.15)."""
    IN_FLIGHT = "in-flight"
    """max(2, micro-batches in flight), used again (DeepSpeed)."""


class Granularity(StrEnum):
    """The smallest part of a job that recompute can be chosen for."""

    LAYER = "layer"
    STAGE = "stage"
    JOB = "job"


class Sharding(StrEnum):
    """Which state the data-parallel ranks divide among themselves (ZeRO levels)."""

    NONE = "none"
    """Each replica has all of it."""
    OPTIMIZER = "optimizer"
    """Optimizer state."""
    GRADIENTS = "gradients"
    """Optimizer state and gradients."""
    PARAMETERS = "parameters"
    """Optimizer state, gradients and parameters."""


class OptimizerHome(StrEnum):
    """Memory that the optimizer state of a rank lives in."""

    DEVICE = "device"
    """That of its device."""
    HOST = "host"
    """That of the machine: gradients go there after the last backward pass, the
    optimizer steps there, and parameters come back."""


class Way(StrEnum):
    """Place of a layer's activations between forward and backward, if they are kept."""

    KEPT = "kept"
    """They stay on the device."""
    RECOMPUTED = "recomputed"
    """The layer's input stays, and the backward pass computes them once more."""
    OFFLOADED = "offloaded"
    """They are in the memory of the machine."""
    RECOMPUTED_FROM_HOST = "recomputed-from-host"
    """The layer's input is in the memory of the machine; else as recomputed."""

    @property
    def field(self) -> str:
        """Field of a record that has the numbers of the way."""
        return self.value.replace("-", "_")

    @property
    def recomputes(self) -> bool:
        """Whether the layer is computed twice."""
        return self in (Way.RECOMPUTED, Way.RECOMPUTED_FROM_HOST)

    @property
    def offloads(self) -> bool:
        """Whether something of the layer is in the memory of the machine."""
        return self in (Way.OFFLOADED, Way.RECOMPUTED_FROM_HOST)


def way_of(*, recomputes: bool, offloads: bool) -> Way:
    """Way of a layer that does so."""
    same = recomputes, offloads
    return next(way for way in Way if (way.recomputes, way.offloads) == same)


def can_follow(in_flight: int, before: int) -> bool:
    """Whether a stage may have so many micro-batches in flight, by the stage before.

    With more it would wait for inputs that are not made. With two fewer the stage
    before sends an input that is taken only after the gradient that it waits for.
    """
    return in_flight <= before <= in_flight + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineHoldings(Record):
    """Bytes that the engine adds to what the layers themselves need."""

    receive_buffers: ReceiveBuffers
    stage_outputs_kept: bool
    """A stage's output stays until its backward: one boundary for each in flight."""
    logits_kept: bool
    """The last stage keeps the newest logits through their backward."""
    sends_waited_at_step_end: bool
    """Multi-stage schedules hold what they sent until the step ends."""
    gradient_bucket_copies: Fraction
    """Extra bytes held to communicate gradients, as a fraction of the gradients."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCapabilities(Record):
    """Plans that the engine can run; the search visits nothing else."""

    schedules: tuple[Schedule, ...]
    fewer_micro_batches_than_stages: bool
    """M < P works."""
    in_flight_caps: bool
    """A stage can be kept to fewer micro-batches in flight than the schedule has."""
    uneven_stages: bool
    """Stages may hold different numbers of layers."""
    recompute: Granularity
    shardings: tuple[Sharding, ...]
    """Without a pipeline, P = 1."""
    shardings_with_pipeline: tuple[Sharding, ...]
    tensor_parallel: bool
    optimizer_homes: tuple[OptimizerHome, ...] = (OptimizerHome.DEVICE,)
    offload: bool = False
    """Activations of a layer can be in the memory of the machine between its passes."""
    max_chunks_per_rank: Count = 1
    """Runs of layers on one rank, for interleaved schedules."""

    def check_rules(self) -> None:
        """Everything that works with a pipeline works without one."""
        if not self.schedules:
            raise self.refuse("schedules", "at least one schedule")
        if not set(self.shardings_with_pipeline) <= set(self.shardings):
            raise self.refuse("shardings_with_pipeline", "a part of shardings")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineTraits(Document):
    """One engine in one version."""

    engine: Name
    version: Name
    """The release that was looked at; for Plimsoll's own trainer that of torch."""
    holds: EngineHoldings
    can: EngineCapabilities
    verified: bool
    """A replay stands behind `holds`; without one the interval is widened."""
    num_verified_plans: Index = 0

    def check_rules(self) -> None:
        """Verified means that some plan was replayed."""
        if self.verified and self.num_verified_plans == 0:
            raise self.refuse("num_verified_plans", "at least 1 where verified is true")
