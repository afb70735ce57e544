"""Ranks of plans under a cap, trained by real processes and timed.

In: a family's plan, the schedule that it is run with, a cap. Out: the peak of every
rank and the seconds of its steps. Called by `vpipe`. GPipe is
run on a chain that has one layer for each stage, and all of them recompute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch.distributed as dist
from torch import nn

from benchmarks.frame import CannotRunError
from benchmarks.support.capped_run import FULL_TEXT
from benchmarks.support.families import FAMILIES, workload
from benchmarks.support.family_run import measured
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.process.assignment import slices_of
from plimsoll_trainer.workload import Layer, Workload
from tests.support import ranks

NUM_STEPS = 3
"""The first is a warm-up: it makes the optimizer's state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A plan as it was run."""

    peaks_bytes: tuple[int, ...] = ()
    """Of the tensors of every rank; empty where some rank ran out of memory."""
    steps_s: tuple[float, ...] = ()
    """Of the steps after the first."""


def in_one(factories: Sequence[Callable[[], nn.Module]]) -> nn.Module:
    """Layers of a stage as one module."""
    return nn.Sequential(*(factory() for factory in factories))


def by_stages(model: Workload, slices: Sequence[StageSlice]) -> Workload:
    """Model with one layer for each stage."""
    layers = tuple(
        Layer(
            name=f"stage.{place}",
            kind=f"stage {place}",
            factory=partial(
                in_one,
                [
                    layer.factory
                    for layer in model.layers[part.first_layer : part.end_layer]
                ],
            ),
        )
        for place, part in enumerate(slices)
    )
    return replace(model, layers=layers)


def one_layer_each(slices: Sequence[StageSlice]) -> tuple[StageSlice, ...]:
    """Stages of one layer, which recomputes."""
    return tuple(
        replace(
            part,
            first_layer=place,
            end_layer=place + 1,
            recomputed=frozenset({place}),
        )
        for place, part in enumerate(slices)
    )


def timed_rank(family: str, plan: HybridPlan, schedule: Schedule) -> Run:
    """Train as one rank; runs in a process of its own."""
    model = workload(family=family, depth=FAMILIES[family].depth)
    slices = slices_of(plan)
    if schedule is Schedule.GPIPE:
        model, slices = by_stages(model, slices), one_layer_each(slices)
    steps_s: list[float] = []

    def time_step(run_step: Callable[[], object]) -> None:
        dist.barrier()
        started_s = time.perf_counter()
        run_step()
        dist.barrier()
        steps_s.append(time.perf_counter() - started_s)

    peak = measured(model, slices, plan, schedule, NUM_STEPS, time_step)
    return Run(peaks_bytes=(peak,), steps_s=tuple(steps_s[1:]))


def timed_run(
    family: str,
    plan: HybridPlan,
    cap_bytes: int,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
) -> Run:
    """Train a plan, each rank on a device of a cap.

    Raises:
        CannotRunError: a rank died of something else than memory.
    """
    ended = ranks.try_ranks(
        timed_rank, [cap_bytes] * plan.num_gpus, family, plan, schedule
    )
    died = [end.text for end in ended if isinstance(end, ranks.Died)]
    if any(FULL_TEXT in text for text in died):
        return Run()
    if died:
        raise CannotRunError(f"a rank died, and not of memory: {' '.join(died)}")
    runs = [end for end in ended if isinstance(end, Run)]
    return Run(
        peaks_bytes=tuple(peak for run in runs for peak in run.peaks_bytes),
        steps_s=runs[0].steps_s,
    )
