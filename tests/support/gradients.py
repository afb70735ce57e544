"""Gradients of stages, and their exchange, as the planner's timing has them."""

from __future__ import annotations

import numpy as np

from plimsoll_planner.memory.stage_peaks import StageBytes
from plimsoll_planner.timing.stage_runs import Gradients, exchange_seconds
from plimsoll_planner.timing.topology import Topology


def gradients_of(stages: StageBytes) -> Gradients:
    """Whole gradients of all runs; of numbers that go to the host a byte each."""
    return Gradients(
        num_bytes=stages.gradient,
        exchanges=stages.num_exchanges,
        to_host_bytes=stages.owned,
        from_host_bytes=stages.owned,
    )


def exchange_s(
    placed: Topology, stage: int, num_bytes: int, num_exchanges: int
) -> float:
    """Seconds of exchanging so many bytes among the replicas of a stage."""
    nothing = np.array(0)
    gradients = Gradients(
        num_bytes=np.array(num_bytes),
        exchanges=np.array(num_exchanges),
        to_host_bytes=nothing,
        from_host_bytes=nothing,
    )
    return float(exchange_seconds(placed, stage, gradients))
