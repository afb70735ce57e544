"""Messages between the profiler and its probing processes, a line each.

    prober  -> profiler      Frame, once
    profiler -> prober       ProbeRequest
    prober  -> profiler      ProbeResult, before the next request

    grapher -> profiler      GraphMessage for each micro-batch; it is not asked

Either may die at any moment. Lines are JSON of records, so that neither side trusts
the other's numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from plimsoll_planner.records.bounds import (
    LARGEST_INTEGER,
    Bytes,
    Count,
    Index,
    Message,
    Name,
    Range,
    Seconds,
    Work,
)
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.graph_profile import ProfiledGraph
from plimsoll_planner.records.model_profile import (
    Fingerprint,
    NotSplit,
    ProbeOutcome,
    Recipe,
    TiedLayers,
    Variant,
)
from plimsoll_planner.records.record import Record

Giver = Annotated[int, Range(minimum=-1, maximum=LARGEST_INTEGER)]
"""A layer, or -1 for an input of the model."""
WHOLE = Variant()
"""Layers that each rank has all of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case(Record):
    """A layer in its place, which stands for all layers of its kind."""

    name: Name
    layer: Index
    """The first layer of the kind."""
    recomputable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CarriedFrame(Record):
    """A value that layers carry past others."""

    name: Name
    source: Giver
    """Layer that gives it, -1 for an input of the model."""
    takers: tuple[Index, ...]
    needs_gradient: bool
    num_bytes: tuple[Bytes, ...]
    """At each of the frame's micro-batches; its form says all of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame(Document):
    """Facts of the workload that the prober knows before it probes anything."""

    fingerprint: Fingerprint
    recipe: Recipe
    device_product: Name
    tokens_per_sample: Count
    input_bytes_per_sample: Bytes
    target_bytes_per_sample: Bytes
    micro_batches: tuple[Count, ...]
    """To be probed: those of the request that the layers take, the smallest first."""
    layers: tuple[Name, ...]
    kind_of_layer: tuple[Index, ...]
    """Which entry of `cases` each layer is."""
    cases: tuple[Case, ...]
    variants: tuple[Variant, ...] = (WHOLE,)
    """To be probed."""
    split_cases: tuple[Index, ...] = ()
    """Those that are not alike under every tensor degree; under one that splits
    sequences all are others."""
    not_split: tuple[NotSplit, ...] = ()
    """Degrees that were asked for and cannot be had."""
    num_untrained: Index = 0
    """Layers in front of the first one that trains."""
    not_compared: tuple[Index, ...] = ()
    """Cases too large for their split to be compared with the whole layer."""
    tied: tuple[TiedLayers, ...]
    carried: tuple[CarriedFrame, ...] = ()

    def is_own(self, case: int, variant: Variant) -> bool:
        """Whether a case is to be probed in a variant, as it differs from others."""
        is_split = variant.sequence_parallel or case in self.split_cases
        return is_split or variant == WHOLE


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeRequest(Document):
    """One probe: a case at a micro-batch, run in every way."""

    case: Index
    micro_batch: Count
    variant: Variant = WHOLE


@dataclass(frozen=True, kw_only=True, slots=True)
class DividedState(Record):
    """State by numbers; the fields are those of `DividedColumns`."""

    num_parameters: Index
    num_buffers: Index
    num_numbers: Index
    smallest_buffer: Index
    parameter_bytes: Bytes
    optimizer_bytes_per_number: Bytes
    optimizer_rest_bytes: Bytes
    transient_bytes_per_number: Bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerState(Record):
    """Bytes and seconds that do not depend on the micro-batch."""

    parameter_bytes: Bytes
    gradient_bytes: Bytes
    buffer_bytes: Bytes
    optimizer_bytes: Bytes
    optimizer_transient_bytes: Bytes
    optimizer_traffic_bytes: Work
    optimizer_step_s: Seconds | None = None
    host_step_s: Seconds | None = None
    """With the optimizer on the host."""
    divided: DividedState | None = None
    """None where replicas cannot divide the optimizer state."""
    step_sent_bytes: Bytes = 0
    """To other ranks of a tensor group, by each, once in a step."""
    step_latencies: Index = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Activations:
    """Bytes of one micro-batch; the fields are those of `ActivationColumns`.

    Nothing is saved and no backward runs where nothing before or in the layer is
    trained.
    """

    boundary_bytes: Bytes
    saved_bytes: Bytes = 0
    keeps_input: bool = False
    keeps_output: bool = False
    forward_transient_bytes: Bytes
    backward_transient_bytes: Bytes = 0
    backward_transient_at_end_bytes: Bytes = 0
    held_input_bytes: Bytes = 0
    """By how much the transients of backward grow where the input outlives the pass:
    else it may be gone when they peak."""
    host_bytes: Bytes = 0
    """In the memory of the machine between the passes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PassCosts(Activations, Record):
    """Bytes, work and seconds of one micro-batch."""

    forward_flop: Work
    forward_traffic_bytes: Work
    backward_flop: Work
    backward_traffic_bytes: Work
    forward_uncounted_flop: Work = 0.0
    """Assumed of operators without a formula, besides."""
    backward_uncounted_flop: Work = 0.0
    uncounted: tuple[Name, ...] = ()
    """Their names, of both passes."""
    forward_s: Seconds | None = None
    backward_s: Seconds | None = None
    forward_sent_bytes: Bytes = 0
    """To other ranks of a tensor group, by each."""
    forward_latencies: Index = 0
    """Of the link to them that each waits for, one after the other."""
    backward_sent_bytes: Bytes = 0
    backward_latencies: Index = 0
    largest_message_bytes: Bytes = 0
    """Of both passes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult(Document):
    """Findings of a probe, or that it did not fit."""

    case: Index
    micro_batch: Count
    variant: Variant = WHOLE
    outcome: ProbeOutcome
    said: Message = ""
    """The error's line, where the probe did not complete."""
    state: LayerState | None = None
    kept: PassCosts | None = None
    recomputed: PassCosts | None = None
    """None where the layer cannot be recomputed."""
    offloaded: PassCosts | None = None
    recomputed_from_host: PassCosts | None = None
    """None where the layer cannot be recomputed."""
    batch_statistics: tuple[Name, ...] = ()
    """Causes for samples of a micro-batch to depend on one another."""

    def check_rules(self) -> None:
        """A probe that completed has its numbers."""
        completed = self.outcome is ProbeOutcome.COMPLETED
        for field in ("state", "kept"):
            if (getattr(self, field) is None) == completed:
                raise self.refuse(field, "given exactly where the probe completed")


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphMessage(Document):
    """Operators of a step of one micro-batch, and what they are of."""

    fingerprint: Fingerprint
    profiled: ProfiledGraph


def out_of_memory(request: ProbeRequest, said: str) -> ProbeResult:
    """Result of a probe that did not fit; `said` is the reason, as it is reported."""
    return ProbeResult(
        case=request.case,
        micro_batch=request.micro_batch,
        variant=request.variant,
        outcome=ProbeOutcome.OUT_OF_MEMORY,
        said=said,
    )
