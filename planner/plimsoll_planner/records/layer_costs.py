"""Costs of layers, as columns: one row for each kind of layer and variant.

Columns, not objects, so that a profile of 1e5 nodes loads in under a second. Quantities
that grow with the micro-batch b are straight lines with an error:

    value(b) = constant + slope * b
    lower(b) = (value(b) - residual) * (1 - relative_error), neither factor below 0
    upper(b) = (value(b) + residual) * (1 + relative_error)

`residual` is the largest distance of a probe from the line; `relative_error` is what
the way of obtaining the number leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from plimsoll_planner.records.bounds import Bytes, Index, RelativeError, Seconds, Work
from plimsoll_planner.records.engine import Way
from plimsoll_planner.records.interval import ByteInterval, SecondsInterval
from plimsoll_planner.records.record import Record

UNCOUNTED = {"lower": 0.0, "expected": 1.0, "upper": 16.0}
"""Factor on the FLOPs that are assumed of operators without a formula. Bilinear forms,
the furthest of those that have one now, do 11 times what was assumed of them."""


class Source(StrEnum):
    """How a number was obtained."""

    TRACED = "traced"
    """Counted from the operators that run, on tensors without data."""
    MEASURED = "measured"
    """Read from a real device."""
    ESTIMATED = "estimated"
    """Computed from counted work and the rates of an offer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ByteColumns(Record):
    """Lines of bytes over the micro-batch; entry i belongs to row i of the table."""

    constant_bytes: tuple[Bytes, ...]
    slope_bytes_per_sample: tuple[Bytes, ...]
    residual_bytes: tuple[Bytes, ...]
    relative_error: tuple[RelativeError, ...]
    source: tuple[Source, ...]
    probed_bytes: tuple[tuple[Bytes, ...], ...] | None = None
    """Bytes at 1, 2, ... samples, as far as each was probed; they take the line's place
    there: one sample makes views where more make copies, and a peak may pass from one
    operator to another. None: nothing but the line."""

    @property
    def num_probed(self) -> int:
        """Samples up to which some row was probed."""
        return max(map(len, self.probed_bytes or ()), default=0)

    def at(self, row: int, micro_batch: int) -> ByteInterval:
        """Bytes of one row for a micro-batch of `micro_batch` samples."""
        probed = () if self.probed_bytes is None else self.probed_bytes[row]
        if micro_batch <= len(probed):
            value, residual = probed[micro_batch - 1], 0
        else:
            slope = self.slope_bytes_per_sample[row]
            value = self.constant_bytes[row] + slope * micro_batch
            residual = self.residual_bytes[row]
        return ByteInterval.around(value, residual, self.relative_error[row])


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondsColumns(Record):
    """Lines of seconds over the micro-batch; entry i belongs to row i of the table."""

    constant_s: tuple[Seconds, ...]
    slope_s_per_sample: tuple[Seconds, ...]
    residual_s: tuple[Seconds, ...]
    relative_error: tuple[RelativeError, ...]
    source: tuple[Source, ...]
    probed_s: tuple[tuple[Seconds, ...], ...] | None = None
    """Seconds at 1, 2, ... samples, as far as each was probed; they take the line's
    place there: a few samples do not fill a device, and more do not fit its caches.
    None: nothing but the line."""

    def at(self, row: int, micro_batch: int) -> SecondsInterval:
        """Seconds of one row for a micro-batch of `micro_batch` samples."""
        probed = () if self.probed_s is None else self.probed_s[row]
        if micro_batch <= len(probed):
            value, residual = probed[micro_batch - 1], 0.0
        else:
            value = self.constant_s[row] + self.slope_s_per_sample[row] * micro_batch
            residual = self.residual_s[row]
        error = self.relative_error[row]
        return SecondsInterval(
            lower_s=max(value - residual, 0.0) * max(1 - error, 0.0),
            expected_s=value,
            upper_s=(value + residual) * (1 + error),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkColumns(Record):
    """Counted work of a pass; seconds on a device that nobody measured come from it."""

    flop_constant: tuple[Work, ...]
    flop_per_sample: tuple[Work, ...]
    traffic_constant_bytes: tuple[Work, ...]
    """Bytes that its operators read and write."""
    traffic_bytes_per_sample: tuple[Work, ...]
    uncounted_flop_constant: tuple[Work, ...] | None = None
    """Assumed work of operators without a FLOP formula: products of matrices as large
    as their tensors. None: there are no such operators."""
    uncounted_flop_per_sample: tuple[Work, ...] | None = None

    def check_rules(self) -> None:
        """Work that is not counted is a line as well."""
        is_given = self.uncounted_flop_constant is not None
        if is_given == (self.uncounted_flop_per_sample is None):
            rule = "given where uncounted_flop_constant is, and only there"
            raise self.refuse("uncounted_flop_per_sample", rule)

    def uncounted_flop(self, row: int, micro_batch: int) -> float:
        """FLOPs that are assumed of what nobody counted in one row."""
        constant, slope = self.uncounted_flop_constant, self.uncounted_flop_per_sample
        if constant is None or slope is None:
            return 0.0
        return constant[row] + slope[row] * micro_batch


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivationColumns(Record):
    """Bytes of one micro-batch in a layer, besides its state.

    The input belongs to the layer before, and the output is counted as `boundary`: it
    lives on while its own layer or the next one keeps it for the backward pass.
    """

    saved: ByteColumns
    """Kept from forward to backward, without input and output."""
    keeps_input: tuple[bool, ...]
    """The backward pass needs the input."""
    keeps_output: tuple[bool, ...]
    """The backward pass needs the output."""
    forward_transient: ByteColumns
    """Peak of the forward pass above what was live before it, output included."""
    backward_transient: ByteColumns
    """Peak of the backward pass above what was live before the layer's forward pass:
    what was saved, and the gradients of output and input, included. Inside a stage,
    where the output's gradient is gone as soon as the layer has used it."""
    backward_transient_at_end: ByteColumns
    """The same for the last layer of a stage: the engine received the output's gradient
    and holds it until the pass is over."""
    held_input: ByteColumns | None = None
    """By how much either peak of backward is higher where the input outlives the
    layer's own backward pass: the engine holds it for the first layer of a stage, and
    the layer before keeps its output until its own pass. None: nothing."""
    on_host: ByteColumns | None = None
    """Kept in the memory of the machine from forward to backward. None: nothing."""

    @property
    def of_micro_batches(self) -> list[ByteColumns]:
        """All bytes, which depend on the micro-batch."""
        every = [
            *(self.saved, self.forward_transient, self.backward_transient),
            *(self.backward_transient_at_end, self.held_input, self.on_host),
        ]
        return [columns for columns in every if columns]


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageColumns(Record):
    """Messages of a tensor group; entry i belongs to row i of the table.

    They go over the link inside a node: its latency, so many times, and the bytes.
    """

    constant_bytes: tuple[Bytes, ...]
    """That each rank sends, at any micro-batch."""
    bytes_per_sample: tuple[Bytes, ...]
    """That each rank sends besides."""
    num_latencies: tuple[Index, ...]
    """In a ring of T ranks T - 1 for a gather or a scatter, 2 (T - 1) for a sum."""

    def num_bytes(self, row: int, micro_batch: int) -> int:
        """Bytes that each rank sends of one row."""
        return self.constant_bytes[row] + self.bytes_per_sample[row] * micro_batch


@dataclass(frozen=True, kw_only=True, slots=True)
class DividedColumns(Record):
    """Layers as they lie where replicas divide the optimizer state.

    The trained parameters of a layer lie in one buffer for each pair of types, each
    rounded up to whole vectors (`techniques/sharding`).
    """

    num_parameters: tuple[Index, ...]
    """Trained parameters."""
    num_buffers: tuple[Index, ...]
    """Pairs of types, of parameters and of sums of their gradients."""
    num_numbers: tuple[Index, ...]
    """Of all trained parameters, each rounded up."""
    smallest_buffer: tuple[Index, ...]
    """Numbers of the buffer that has the fewest; 0 without one."""
    parameter_bytes: tuple[Bytes, ...]
    """Of these numbers and of what is not trained, in the types computed in."""
    optimizer_bytes_per_number: tuple[Bytes, ...]
    """Optimizer state that every number has, master weights included."""
    optimizer_rest_bytes: tuple[Bytes, ...]
    """Optimizer state that each parameter has once, such as counts of steps."""
    transient_bytes_per_number: tuple[Bytes, ...]
    """Of the gradient norm and the optimizer step on top, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCosts(Record):
    """The table. Bytes are those of one rank that holds the layer in that variant.

    Parameters have gradients for the whole step. The last layer of a model ends in the
    loss: its boundary is that scalar.
    """

    kind: tuple[Index, ...]
    """Which entry of the profile's `kinds` the row describes."""
    variant: tuple[Index, ...]
    """Which entry of the profile's `variants`."""
    parameter_bytes: tuple[Bytes, ...]
    """In the type they are computed in; master weights are optimizer state."""
    gradient_bytes: tuple[Bytes, ...]
    buffer_bytes: tuple[Bytes, ...]
    """State that is not trained, such as running statistics."""
    optimizer_bytes: tuple[Bytes, ...]
    """Optimizer state that stays, master weights included."""
    optimizer_transient_bytes: tuple[Bytes, ...]
    """Bytes of the layer's gradient norm and optimizer step on top; the optimizer
    steps layer by layer, so a rank holds the largest of them at a time."""
    boundary: ByteColumns
    """The output that the layers after it receive."""
    kept: ActivationColumns
    """When the layer keeps what its backward pass needs."""
    recomputable: tuple[bool, ...]
    """False where a layer must keep its activations."""
    recomputed: ActivationColumns
    """When the backward pass computes the layer once more from its input."""
    offloaded: ActivationColumns | None = None
    """When all that the backward pass needs is in the memory of the machine meanwhile.
    None in profiles of before that was asked."""
    recomputed_from_host: ActivationColumns | None = None
    """When the layer is computed once more, and its input is there. None as well."""
    forward_work: WorkColumns
    backward_work: WorkColumns
    """Without recomputing, which costs one more forward pass."""
    optimizer_traffic_bytes: tuple[Work, ...]
    """Bytes that the optimizer step reads and writes."""
    forward: SecondsColumns | None = None
    """None where no device was measured."""
    backward: SecondsColumns | None = None
    """Without recomputing."""
    recompute: SecondsColumns | None = None
    """Seconds that recomputing adds to both passes; they count in the backward pass."""
    optimizer_step_s: tuple[Seconds, ...] | None = None
    host_step_s: tuple[Seconds, ...] | None = None
    """Of the optimizer step on the host, with as many threads as each rank has there.
    None where it was not measured."""
    divided: DividedColumns | None = None
    """None where replicas cannot divide the optimizer state, because the optimizer
    mixes numbers of a tensor, and in profiles of before that was asked."""
    forward_messages: MessageColumns | None = None
    """Of a tensor group in the forward pass of a micro-batch; recomputing repeats them.
    None where no variant is split."""
    backward_messages: MessageColumns | None = None
    """In the backward pass, without recomputing."""
    held_messages: ByteColumns | None = None
    """Messages of a tensor group that the device may hold on to past their time, as
    threads of gloo do. None where a device holds none."""
    step_messages: MessageColumns | None = None
    """Once in a step, after the last backward pass. None: there are none."""

    @property
    def ways(self) -> dict[Way, ActivationColumns]:
        """Activations in each way that was profiled."""
        every = ((way, getattr(self, way.field)) for way in Way)
        return {way: columns for way, columns in every if columns}

    @property
    def of_micro_batches(self) -> list[ByteColumns]:
        """All bytes that depend on the micro-batch."""
        every = [self.boundary, self.held_messages]
        for columns in self.ways.values():
            every += columns.of_micro_batches
        return [columns for columns in every if columns]

    @property
    def num_probed(self) -> int:
        """Samples up to which the bytes of some layer were probed; then come lines."""
        return max(columns.num_probed for columns in self.of_micro_batches)

    @property
    def is_timed(self) -> bool:
        """Whether a device was measured."""
        return self.forward is not None

    def check_rules(self) -> None:
        """All columns are of one length, no row repeats another, all times or none."""
        self.require_equal_lengths("kind", of="row")
        rows = list(zip(self.kind, self.variant, strict=True))
        if len(set(rows)) < len(rows):
            raise self.refuse("kind", "one row for each kind and variant")
        for field in ("backward", "recompute", "optimizer_step_s"):
            if (getattr(self, field) is None) == self.is_timed:
                rule = (
                    "given, as forward is" if self.is_timed else "null, as forward is"
                )
                raise self.refuse(field, rule)
        is_split = self.forward_messages is not None
        if is_split == (self.backward_messages is None):
            rule = "given where forward_messages is, and only there"
            raise self.refuse("backward_messages", rule)
