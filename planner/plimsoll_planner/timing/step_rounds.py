"""The walk of 1F1B for M >= P, a round of all stages at a time.

In: seconds of every stage, the topology, M. Out: when each stage's last backward pass
ends. Called by `step_walk`, whose walk operation by operation gives the same numbers.

Round m has the backward pass of micro-batch m on every stage, from the last stage to
the first, and then the forward pass of micro-batch m + k_s with k_s = P - s, where
there is one. Stage s - 1 ran that one in the round before, for k_{s-1} = k_s + 1. So
the ends of the forward passes of a round depend on those of the round before alone:

    B_s = max(free_s, B_{s+1} + delay_s) + b_s      scanned from the last stage
    F_s = max(B_s, F'_{s-1} + delay_{s-1}) + f_s    F' of the round before, free = F'

Once a round ends later than the one before by the same amount on all stages, so does
every round after it, as long as all stages have a forward pass to run: those are
skipped. Seconds are whole ticks, so this is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.topology import Topology

Floats = NDArray[np.float64]


def last_of_rounds(
    stages: list[StageTimes], num_micro_batches: int, placed: Topology
) -> list[float]:
    """Return when each stage's last backward pass ends; needs M >= P."""
    num_stages = len(stages)
    forward = np.array([stage.forward_s for stage in stages], dtype=np.float64)
    backward = np.array([stage.backward_s for stage in stages], dtype=np.float64)
    delays = np.array(
        [hop.seconds(s.sent_bytes) for hop, s in zip(placed.hops, stages, strict=False)]
    )
    in_flight = num_stages - np.arange(num_stages)
    # Sums along the way back, so that the scan becomes a running maximum.
    way = np.cumsum(backward)
    way[1:] += np.cumsum(delays)
    free = warmed_up(forward, delays)
    micro_batch = 0
    while micro_batch < num_micro_batches:
        through = np.maximum.accumulate((free + way)[::-1])[::-1]
        ends = through - way + backward
        arrived = np.concatenate([[0.0], free[:-1] + delays])
        runs_on = micro_batch + in_flight < num_micro_batches
        after = np.where(runs_on, np.maximum(ends, arrived) + forward, ends)
        step = after - free
        micro_batch += 1
        if runs_on[0] and (step == step[0]).all():
            skipped = num_micro_batches - num_stages - micro_batch
            after += skipped * step[0]
            micro_batch += skipped
        free = after
    return [float(end) for end in free]


def warmed_up(forward: Floats, delays: Floats) -> Floats:
    """Return when each stage ends its P - s forward passes of the warm-up."""
    num_stages = len(forward)
    ends = np.cumsum(np.full(num_stages, forward[0]))
    last = [float(ends[-1])]
    for stage in range(1, num_stages):
        arrived = ends[: num_stages - stage] + delays[stage - 1]
        # end_m = max(end_{m-1}, arrived_m) + f, unrolled into a running maximum.
        steps = forward[stage] * np.arange(num_stages - stage)
        ends = np.maximum.accumulate(arrived - steps) + steps + forward[stage]
        last.append(float(ends[-1]))
    return np.array(last)
