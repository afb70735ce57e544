"""Bounds of a walked step, where the seconds of its passes are known within bounds.

In: the stages' seconds under the three bounds, M, a topology. Out: the interval of the
step. Called for the plans that are written down, and where a rate must hold for all
seconds inside their bounds.

Without shared cores a step grows with each of its passes, so the walks of the lower and
the upper seconds are its bounds. With shared cores it does not (Graham, Bounds on
Multiprocessing Timing Anomalies, 1969): which pass gets a core depends on the seconds,
and shorter passes may end later; walks within the bounds lay up to 17 % outside those
two walks. What holds there, with W the work of all ranks of a node, m its cores, and C
the longest chain of passes that wait for one another, alone on as many cores as ranks:

    lower = max(walk without sharing, largest W / m over the nodes)      lower seconds
    upper = C (1 - 1/m) + sum of W / m over the nodes                    upper seconds

the latter because, while the chain waits, all cores of some node do other work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from plimsoll_planner.records.interval import SecondsInterval
from plimsoll_planner.timing.schedule import PipelineSchedule
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.step_walk import SharedWalk, are_shared, walk
from plimsoll_planner.timing.ticks import up
from plimsoll_planner.timing.topology import Topology

Stages = list[StageTimes]


def step_interval(
    schedule: PipelineSchedule,
    bounds: Sequence[Stages],
    num_micro_batches: int,
    placed: Topology,
) -> SecondsInterval:
    """Bounds of the seconds of a step.

    Args:
        schedule: the order of passes.
        bounds: the stages' seconds: lower, expected, upper.
        num_micro_batches: M.
        placed: where the ranks stand.
    """
    low, middle, high = bounds
    expected_s = walk(schedule, middle, num_micro_batches, placed)
    is_shared = any(are_shared(stages, placed) for stages in bounds)
    shortest_s = least_shared_s if is_shared else walk
    lower_s = shortest_s(schedule, low, num_micro_batches, placed)
    upper_s = longest_step_s(schedule, high, num_micro_batches, placed)
    return SecondsInterval(
        lower_s=min(lower_s, expected_s),
        expected_s=expected_s,
        upper_s=max(upper_s, expected_s),
    )


def longest_step_s(
    schedule: PipelineSchedule,
    stages: Stages,
    num_micro_batches: int,
    placed: Topology,
) -> float:
    """Seconds that no step exceeds whose passes take at most these."""
    longest_s = most_shared_s if are_shared(stages, placed) else walk
    return longest_s(schedule, stages, num_micro_batches, placed)


def least_shared_s(
    schedule: PipelineSchedule,
    stages: Stages,
    num_micro_batches: int,
    placed: Topology,
) -> float:
    """Return the seconds that no walk with shared cores goes below."""
    alone = replace(placed, concurrent_per_node=None)
    cores = placed.concurrent_per_node or 1
    work = node_seconds(SharedWalk(schedule, stages, num_micro_batches, placed))
    return max(
        walk(schedule, stages, num_micro_batches, alone), max(work.values()) / cores
    )


def most_shared_s(
    schedule: PipelineSchedule,
    stages: Stages,
    num_micro_batches: int,
    placed: Topology,
) -> float:
    """Return the seconds that no walk with shared cores exceeds."""
    cores = placed.concurrent_per_node or 1
    num_ranks = placed.mesh.num_gpus
    ample = replace(placed, concurrent_per_node=max(num_ranks, cores))
    work = node_seconds(SharedWalk(schedule, stages, num_micro_batches, placed))
    chain_s = SharedWalk(schedule, stages, num_micro_batches, ample).run()
    in_all = chain_s * (1 - 1 / cores) + sum(work.values()) / cores
    # Each pass is rounded up to a tick after it was slowed down.
    num_ticks = num_ranks * (2 * num_micro_batches + 1)
    return up(in_all * placed.crowded_slowdown) + num_ticks * up(1e-12)


def node_seconds(walked: SharedWalk) -> dict[int, float]:
    """Return the seconds that the ranks of each node compute and copy.

    Args:
        walked: not run yet.
    """
    found: dict[int, float] = defaultdict(float)
    for rank in walked.ranks:
        for place in range(len(rank.order) + 1):
            found[rank.node] += walked.taken_s(replace(rank, place=place))
    return found
