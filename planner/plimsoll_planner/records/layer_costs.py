"""What layers cost, as columns: one row for each kind of layer and variant.

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

from plimsoll_planner.records.bounds import Bytes, Index, RelativeError, Seconds
from plimsoll_planner.records.interval import ByteInterval, SecondsInterval
from plimsoll_planner.records.record import Record


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

    def at(self, row: int, micro_batch: int) -> ByteInterval:
        """Bytes of one row for a micro-batch of `micro_batch` samples."""
        slope = self.slope_bytes_per_sample[row]
        return ByteInterval.around(
            self.constant_bytes[row] + slope * micro_batch,
            self.residual_bytes[row],
            self.relative_error[row],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondsColumns(Record):
    """Lines of seconds over the micro-batch; entry i belongs to row i of the table."""

    constant_s: tuple[Seconds, ...]
    slope_s_per_sample: tuple[Seconds, ...]
    residual_s: tuple[Seconds, ...]
    relative_error: tuple[RelativeError, ...]
    source: tuple[Source, ...]

    def at(self, row: int, micro_batch: int) -> SecondsInterval:
        """Seconds of one row for a micro-batch of `micro_batch` samples."""
        value = self.constant_s[row] + self.slope_s_per_sample[row] * micro_batch
        residual, error = self.residual_s[row], self.relative_error[row]
        return SecondsInterval(
            lower_s=max(value - residual, 0.0) * max(1 - error, 0.0),
            expected_s=value,
            upper_s=(value + residual) * (1 + error),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCosts(Record):
    """The table. Bytes are those of one rank that holds the layer in that variant."""

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
    """What the optimizer step holds on top, in the profile's optimizer mode."""
    optimizer_step_s: tuple[Seconds, ...]
    saved: ByteColumns
    """Live bytes that one forward pass adds: saved activations and the output."""
    transient: ByteColumns
    """Peak of forward and backward above the bytes live before the layer."""
    boundary: ByteColumns
    """The output that the layers after it receive."""
    recomputable: tuple[bool, ...]
    """False where a layer must keep its activations."""
    recomputed_saved: ByteColumns
    """As `saved`, when the backward pass recomputes the layer."""
    recomputed_transient: ByteColumns
    """As `transient`, when the backward pass recomputes the layer."""
    forward: SecondsColumns
    backward: SecondsColumns
    """Without recomputing."""
    recompute: SecondsColumns
    """What recomputing adds to the backward pass."""

    def check_rules(self) -> None:
        """All columns are of one length, and no row repeats another."""
        self.require_equal_lengths("kind", of="row")
        rows = list(zip(self.kind, self.variant, strict=True))
        if len(set(rows)) < len(rows):
            raise self.refuse("kind", "one row for each kind and variant")
