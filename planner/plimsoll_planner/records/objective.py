"""The quantity that a plan makes smallest or largest, and how fast it has to be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from plimsoll_planner.records.bounds import Fraction, Range
from plimsoll_planner.records.record import Record

SampleRate = Annotated[float, Range(minimum=0, maximum=1e12, above=True)]
"""Samples per second."""
Deadline = Annotated[float, Range(minimum=0, maximum=1e10, above=True, unit="s")]


class Goal(StrEnum):
    """Quantity to make smallest or largest."""

    MINIMIZE_GPUS = "MinimizeGPUs"
    """The fewest GPUs at the slowest rate that will do, or faster."""
    MINIMIZE_MEMORY = "MinimizeMemory"
    """The least memory of any device, at the same rate."""
    MINIMIZE_COST = "MinimizeCost"
    """The least cost of the whole training."""
    MAXIMIZE_THROUGHPUT = "MaximizeThroughput"
    """The most samples per second, then fewer GPUs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective(Record):
    """The goal, and the floor of speed without which it would be degenerate."""

    goal: Goal = Goal.MINIMIZE_GPUS
    rate_floor: Fraction = 0.5
    """Of the best samples per second per GPU over all counts allowed."""
    min_samples_per_s: SampleRate | None = None
    """Takes the place of `rate_floor`."""
    throughput_tolerance: Fraction = 0.05
    """Within the chosen count: how much throughput may go for less memory."""
    deadline_s: Deadline | None = None
    """For the whole training; with MinimizeCost."""
