"""Ranks of a plan of a family's model, trained by real processes.

In: a model and its plan. Out: of each rank the peak of its tensors over two steps, of
which the second has the optimizer's state, in bytes.
"""

from __future__ import annotations

import gc

import torch

from benchmarks.support.families import workload
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.process.assignment import slices_of
from tests.support import ranks

NUM_STEPS = 2
CPU = torch.device("cpu")
ranks.PRELOAD.append("benchmarks.support.families")


def train_rank(family: str, depth: int, plan: HybridPlan) -> int:
    """Train as one rank; runs in a process of its own."""
    device = EmulatedDevice()
    model = workload(family=family, depth=depth)
    shapes = boundaries_of(model, plan.micro_batch)
    gc.collect()
    before = device.current_bytes
    device.reset_peak()
    trainer = Trainer(
        model,
        slices=slices_of(plan),
        boundaries=shapes,
        num_micro_batches=plan.num_micro_batches,
        world=join_world(len(plan.stages), 1, CPU),
    )
    for step in range(NUM_STEPS):
        trainer.run_step(step)
    return device.peak_bytes - before


def peaks_of(family: str, depth: int, plan: HybridPlan) -> list[int]:
    """Peaks of all ranks of a plan."""
    return ranks.run_ranks(train_rank, plan.num_gpus, family, depth, plan)
