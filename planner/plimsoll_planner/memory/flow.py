"""How micro-batches go through one stage of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """Inputs of a stage's memory besides its layers and their ways."""

    in_flight: int
    """k."""
    num_micro_batches: int
    """M."""
    micro_batch: int
    """b."""
    data_degree: int
    """D."""
