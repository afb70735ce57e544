"""Replays a rank: its real stage, schedule and optimizer, on tensors without data.

The process is one rank of a group that has no other members: nothing is sent, but what
real sends and receives would hold is held. Two steps are run; the first brings buffers
and optimizer state into being, the second one's peak is the steady peak.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plimsoll_planner.engines import engine_named
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import Phase
from plimsoll_profiler.meters import Bench, open_bench
from plimsoll_trainer.boundaries import Boundaries
from plimsoll_trainer.stage import StageSlice
from plimsoll_trainer.torch_internals import single_process, standing_buffers
from plimsoll_trainer.training import Trainer
from plimsoll_trainer.workload import MakeBatch, Workload
from plimsoll_trainer.world import join_world

CPU = torch.device("cpu")
BEYOND_WARM_UP = 2
"""Micro-batches more than stages: 1F1B then repeats itself, whatever their number."""


def num_steady(num_stages: int, stage: int) -> int:
    """Micro-batches after which nothing new is held, however many there are.

    An engine that keeps outputs (torch before 2.15) holds on to one of the warm-up,
    which is one more as soon as its own micro-batch is over.
    """
    holds = engine_named("plimsoll", str(torch.__version__)).holds
    turned = 2 * (num_stages - stage) - 1 if holds.stage_outputs_kept else 0
    return max(num_stages + BEYOND_WARM_UP, turned)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayJob:
    """What all ranks of a plan share."""

    workload: Workload
    slices: Sequence[StageSlice]
    num_replicas: int
    num_micro_batches: int
    boundaries: Boundaries
    device_kind: DeviceKind


def replay_stage(job: ReplayJob, stage: int) -> dict[Phase, int]:
    """Return the peak of tensors in each phase of a steady step, in bytes.

    A step of 1F1B repeats itself once the pipeline is full, so a few micro-batches
    stand for all; what the others hold while they wait, or always, is added.

    Args:
        job: the plan.
        stage: whose first rank is replayed; its other ranks are alike.
    """
    peaks: dict[Phase, int] = {}
    num_stages = len(job.slices)
    steady = min(job.num_micro_batches, num_steady(num_stages, stage))
    rank = stage * job.num_replicas
    with single_process(rank, num_stages * job.num_replicas):
        world = join_world(num_stages, job.num_replicas, CPU)
        with open_bench(job.device_kind, Source.TRACED) as bench:

            def read(phase: Phase) -> None:
                peaks[phase] = bench.meter.peak_bytes
                bench.meter.reset_peak()

            trainer = Trainer(
                replace(job.workload, batch=batch_like(job.boundaries)),
                slices=job.slices,
                boundaries=job.boundaries,
                num_micro_batches=steady,
                world=world,
                on_phase=read,
            )
            trainer.run_step(0)
            gc.collect()
            peaks.clear()
            bench.meter.reset_peak()
            trainer.run_step(1)
            buffers = standing_buffers(trainer.schedule)
            standing_bytes = sum(bench.rounded(buffer.nbytes) for buffer in buffers)
            del trainer, buffers
            left_out = job.num_micro_batches - steady
            peaks[Phase.BACKWARD] += left_out * waiting_bytes(job, stage, bench)
            for phase in peaks:
                peaks[phase] += left_out * standing_bytes
    gc.collect()
    return peaks


def waiting_bytes(job: ReplayJob, stage: int, bench: Bench) -> int:
    """Return what a micro-batch holds before its turn and after it, on one stage."""
    inputs, targets = job.boundaries.between[0], job.boundaries.targets
    first = bench.rounded(inputs.nbytes) if stage == 0 else 0
    last = bench.rounded(targets.nbytes) if stage == len(job.slices) - 1 else 0
    return first + last


def batch_like(boundaries: Boundaries) -> MakeBatch:
    """Return a function that makes batches of the right shape, without values."""

    def make(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
        del step, first, count
        return boundaries.between[0].empty(CPU), boundaries.targets.empty(CPU)

    return make
