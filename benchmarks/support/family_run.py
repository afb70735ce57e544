"""Ranks of a plan of a family's model, trained by real processes.

In: a model and its plan. Out: of each rank the peak of its tensors over two steps, of
which the second has the optimizer's state, in bytes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial

import torch

from benchmarks.support.families import workload
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.process.assignment import slices_of
from plimsoll_trainer.workload import Workload
from tests.support import ranks

NUM_STEPS = 2
CPU = torch.device("cpu")
AroundStep = Callable[[Callable[[], object]], object]
"""Runs a step that it is given."""
ranks.PRELOAD.append("benchmarks.support.families")


def measured(
    model: Workload,
    slices: Sequence[StageSlice],
    plan: HybridPlan,
    schedule: Schedule,
    num_steps: int,
    around_step: AroundStep,
) -> int:
    """Peak of this rank's tensors over some steps of a model cut into slices."""
    device = EmulatedDevice()
    shapes = boundaries_of(model, plan.micro_batch)
    gc.collect()
    before = device.current_bytes
    device.reset_peak()
    trainer = Trainer(
        model,
        slices=slices,
        boundaries=shapes,
        num_micro_batches=plan.num_micro_batches,
        world=join_world(len(plan.stages), 1, CPU),
        schedule=schedule,
    )
    for step in range(num_steps):
        around_step(partial(trainer.run_step, step))
    return device.peak_bytes - before


def train_rank(family: str, depth: int, plan: HybridPlan) -> int:
    """Train as one rank; runs in a process of its own."""
    model = workload(family=family, depth=depth)
    of_plan = slices_of(plan), plan, plan.schedule
    return measured(model, *of_plan, NUM_STEPS, lambda run_step: run_step())


def peaks_of(family: str, depth: int, plan: HybridPlan) -> list[int]:
    """Peaks of all ranks of a plan."""
    return ranks.run_ranks(train_rank, plan.num_gpus, family, depth, plan)
