"""The operations of every rank, in order: pure generators, tested on paper.

In: P and M. Out: operations. Called by the walk. Stage s of torch 2.15's Schedule1F1B
runs k = min(M, P - s) forward passes to warm up, then one backward and one forward pass
in turn, then the backward passes that remain; P = 3, M = 4, one line for each stage:

    s = 0   F0 F1 F2 B0 F3 B1 B2 B3
    s = 1   F0 F1 B0 F2 B1 F3 B2 B3
    s = 2   F0 B0 F1 B1 F2 B2 F3 B3
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Pass(StrEnum):
    """What a rank computes."""

    FORWARD = "F"
    BACKWARD = "B"


@dataclass(frozen=True, slots=True)
class Operation:
    """One pass of one micro-batch."""

    kind: Pass
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}"


def in_flight(stage: int, num_stages: int, num_micro_batches: int) -> int:
    """Return k, the most micro-batches that a stage holds at a time."""
    return min(num_micro_batches, num_stages - stage)


def one_f_one_b(
    stage: int, num_stages: int, num_micro_batches: int
) -> Iterator[Operation]:
    """Yield the operations of one stage."""
    warm_up = in_flight(stage, num_stages, num_micro_batches)
    for micro_batch in range(warm_up):
        yield Operation(Pass.FORWARD, micro_batch)
    for micro_batch in range(num_micro_batches):
        yield Operation(Pass.BACKWARD, micro_batch)
        if micro_batch + warm_up < num_micro_batches:
            yield Operation(Pass.FORWARD, micro_batch + warm_up)
