"""Gradients of stages, and their exchange, as the planner's timing has them."""

from __future__ import annotations

import numpy as np

from plimsoll_planner.memory.bounds import Ints
from plimsoll_planner.memory.stage_peaks import AllReduces, StageBytes
from plimsoll_planner.timing.stage_runs import Exchange, exchange_seconds
from plimsoll_planner.timing.topology import Topology


def gradients_of(stages: StageBytes) -> Exchange:
    """Whole gradients of all runs; of numbers that go to the host a byte each."""
    return Exchange(
        at_end=stages.at_end,
        in_forward=stages.in_forward,
        in_backward=stages.in_backward,
        copies=stages.num_trained,
        to_host_bytes=stages.owned,
        from_host_bytes=stages.owned,
    )


def all_reduces(num_bytes: int | Ints, count: int | Ints) -> AllReduces:
    """So many bytes in so many all-reduces."""
    return AllReduces(num_bytes=np.asarray(num_bytes), count=np.asarray(count))


def exchange_s(placed: Topology, stage: int, num_bytes: int, count: int) -> float:
    """Seconds of exchanging so many bytes among the replicas of a stage."""
    return float(exchange_seconds(placed, stage, all_reduces(num_bytes, count)))
