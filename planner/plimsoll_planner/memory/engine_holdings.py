"""What the engine holds besides the mathematics, as numbers that the formula reads.

In: `EngineHoldings`. Out: `HoldingFactors`, of boundaries and gradients. With all of
them as Plimsoll's own trainer has them (torch 2.15) the formula of `rank_peak` stands
as it is; other engines differ by these numbers and by no branch elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.records.engine import EngineHoldings, ReceiveBuffers

LEAST_SHARED_BUFFERS = 2
"""DeepSpeed re-uses max(2, in flight) buffers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldingFactors:
    """Factors; each multiplies the bytes that its name says."""

    buffers: ReceiveBuffers
    input_in_flight: int
    """1: each micro-batch in flight holds what it received; 0: a standing buffer."""
    gradient_received: int
    """1: room for the gradient of the output is made just before it is received."""
    gradient_sent: int
    """1: the gradient of the input lives on until that of the next micro-batch is made,
    as the schedule holds the send."""
    output_kept: bool
    """Each micro-batch in flight holds the stage's output, its backward included."""
    logits_kept: int
    """1: the last stage holds the newest output of the last layer."""
    gradient_copies: float
    """Extra gradient bytes where gradients are exchanged, D > 1."""

    def outputs_past(self, in_flight: int, num_micro_batches: int) -> int:
        """1: an output is still held when its own micro-batch is over.

        The schedule holds on to the last send of its warm-up, that of the micro-batch
        before the last one in flight, until no forward pass is left. Once it is turned
        and as many as ever are in flight, the output is one more.
        """
        is_turned = num_micro_batches >= 2 * in_flight - 1 > 1
        return int(self.output_kept and is_turned)

    @property
    def output_unsent(self) -> int:
        """1: in forward the output of the micro-batch before is held by its send."""
        return 0 if self.output_kept else 1

    def standing(self, in_flight: int, num_micro_batches: int) -> int:
        """Return how many receive buffers of each direction stand for good."""
        match self.buffers:
            case ReceiveBuffers.ALL_MICRO_BATCHES:
                return num_micro_batches
            case ReceiveBuffers.IN_FLIGHT:
                return max(LEAST_SHARED_BUFFERS, in_flight)
            case ReceiveBuffers.JUST_IN_TIME:
                return 0


def holding_factors(holds: EngineHoldings) -> HoldingFactors:
    """Factors of one engine.

    A stage of 1F1B waits for its sends inside the step, so `sends_waited_at_step_end`,
    which is about several stages on a rank, adds nothing here.
    """
    just_in_time = int(holds.receive_buffers is ReceiveBuffers.JUST_IN_TIME)
    return HoldingFactors(
        buffers=holds.receive_buffers,
        input_in_flight=just_in_time,
        gradient_received=just_in_time,
        gradient_sent=int(holds.receive_buffers is not ReceiveBuffers.IN_FLIGHT),
        output_kept=holds.stage_outputs_kept,
        logits_kept=int(holds.logits_kept),
        gradient_copies=holds.gradient_bucket_copies,
    )
