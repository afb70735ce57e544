"""Seconds and bytes of one stage, as a walk of the schedule needs them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTimes:
    """Seconds of one stage for one micro-batch, and at the end of the step."""

    forward_s: float
    backward_s: float
    """Recomputing included."""
    sent_bytes: int
    """Of the boundary behind it; the gradient that comes back is as large."""
    end_s: float
    """After the last backward pass: exchange of gradients and optimizer step."""
    in_flight_cap: int | None = None
    """Micro-batches in flight; None: as many as the schedule lets."""

    def passes_s(self, num_micro_batches: int) -> float:
        """Seconds of all passes of a step."""
        return num_micro_batches * (self.forward_s + self.backward_s)
