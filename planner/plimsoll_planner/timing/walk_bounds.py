"""Bounds of a walked step, if the seconds of its passes are known within bounds.

In: the stages' seconds under the three bounds, M, a topology. Out: the interval of the
step. Called for the plans that are written down, and if a rate must hold for all
seconds inside their bounds.

A step grows with each of its passes, so the walks of the lower and the upper seconds
are its bounds. If ranks share cores, a pass may also wait for a core: no list schedule
takes longer than the walk of ranks alone and all work over all cores together (Graham,
Bounds on Multiprocessing Timing Anomalies, 1969).
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_planner.records.interval import SecondsInterval
from plimsoll_planner.timing.schedule import PipelineSchedule
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.step_walk import crowded_s, walk, walk_alone
from plimsoll_planner.timing.topology import Topology

Stages = list[StageTimes]


def step_interval(
    schedule: PipelineSchedule,
    bounds: Sequence[Stages],
    num_micro_batches: int,
    placed: Topology,
) -> SecondsInterval:
    """Interval of the seconds of a step, from the bounds of its stages."""
    low, middle, high = bounds
    return SecondsInterval(
        lower_s=walk(schedule, low, num_micro_batches, placed),
        expected_s=walk(schedule, middle, num_micro_batches, placed),
        upper_s=longest_step_s(schedule, high, num_micro_batches, placed),
    )


def longest_step_s(
    schedule: PipelineSchedule,
    stages: Stages,
    num_micro_batches: int,
    placed: Topology,
) -> float:
    """Seconds that no step exceeds whose passes take at most these."""
    alone_s = walk_alone(schedule, stages, num_micro_batches, placed)
    shared_s = crowded_s(stages, num_micro_batches, placed)
    return placed.crowded_slowdown * alone_s + shared_s if shared_s else alone_s
