"""Replays a rank: its real stage, schedule and optimizer, on tensors without data.

The process is one rank of a group that has no other members: nothing is sent, but what
real sends and receives would hold is held. One micro-batch brings buffers and optimizer
state into being; the step after it is steady, and its peaks are read.

Two things make a replay short, and change no byte of it:

    pipeline       A stage holds the same wherever the layers before it lie: one stage
                   has them all here. Of P stages P - s + 1 are left.
    micro-batches  As many as the schedule needs to repeat itself stand for any number
                   of them (`PipelineSchedule.steady`), with inputs, targets and losses
                   of the others held as well, as a step holds them to its end. Torch
                   before 2.15 keeps a buffer to receive each of them for good; those of
                   the others are added.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from plimsoll_planner.engines import engine_named
from plimsoll_planner.records.engine import OptimizerHome, Schedule, Sharding
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.schedules import SCHEDULES
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_trainer.engine.boundaries import Boundaries
from plimsoll_trainer.engine.flat_buffers import Share
from plimsoll_trainer.engine.stage import StageSlice, build_stage
from plimsoll_trainer.engine.training import OnPhase, Trainer
from plimsoll_trainer.engine.world import World, join_world
from plimsoll_trainer.torch_internals.pipeline import single_process, standing_buffers
from plimsoll_trainer.workload import Batch, MakeBatch, Workload

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayJob:
    """Job that all ranks of a plan share."""

    workload: Workload
    slices: Sequence[StageSlice]
    num_replicas: int
    num_micro_batches: int
    num_parts: int = 1
    """Ranks of a tensor group."""
    boundaries: Boundaries
    device_kind: DeviceKind
    schedule: Schedule = Schedule.ONE_F_ONE_B

    def shortened(self, stage: int) -> tuple[ReplayJob, int]:
        """The same job with one stage in place of all before `stage`, and its place."""
        if stage == 0:
            return self, 0
        before = StageSlice(
            first_layer=0,
            end_layer=self.slices[stage].first_layer,
            sequence_parallel=self.slices[stage].sequence_parallel,
        )
        return replace(self, slices=(before, *self.slices[stage:])), 1


class FewMicroBatches(Trainer):
    """Runs a few micro-batches of a step, and holds what the others would hold."""

    def __init__(self, job: ReplayJob, world: World, on_phase: OnPhase) -> None:
        """Build a stage that has 1 stage before it at most."""
        holds = engine_named("plimsoll", str(torch.__version__)).holds
        few = SCHEDULES[job.schedule].steady(
            world.num_stages - world.stage, job.num_micro_batches, holds
        )
        super().__init__(
            replace(job.workload, batch=batch_like(job.boundaries)),
            slices=job.slices,
            boundaries=job.boundaries,
            num_micro_batches=few,
            world=world,
            schedule=job.schedule,
            on_phase=on_phase,
        )
        self.num_left_out = job.num_micro_batches - few
        self.losses_left_out: list[Tensor] = []

    def warm_up(self) -> None:
        """Bring buffers and optimizer state into being, by one micro-batch."""
        first, device = self.part.first_layer, self.world.device
        entering = [
            torch.empty_like(like, device=device, requires_grad=like.requires_grad)
            for like in self.boundaries.specs_of(first)
        ]
        y = self.boundaries.targets.empty(device)
        output = self.stage(*entering, targets=y if self.world.is_last else None)
        sent = output if isinstance(output, tuple) else (output,)
        if trained := [one for one in sent if one.requires_grad]:
            torch.autograd.backward(trained, list(map(torch.ones_like, trained)))
        self.stage.end_backward()
        if self.world.is_last:
            likes = [sent[0].detach()] * self.num_left_out
            self.losses_left_out = [torch.empty_like(loss) for loss in likes]
        self.step_layers(self.workload.learning_rate_factor(0))

    def run_micro_batches(self, step: int) -> list[Tensor]:
        """Run the few, while inputs and targets of the others wait."""
        ends = (
            *(self.boundaries.inputs if self.world.is_first else []),
            *([self.boundaries.targets] if self.world.is_last else []),
        )
        waiting = [
            end.empty(self.world.device)
            for end in ends
            for _ in range(self.num_left_out)
        ]
        losses = super().run_micro_batches(step)
        waiting.clear()
        return losses + self.losses_left_out


def replay_stage(job: ReplayJob, stage: int) -> dict[Phase, int]:
    """Peak of tensors in each phase of a steady step, bytes.

    Ranks of a stage are alike. Where they divide state, the one that owns most is
    replayed; of a tensor group the first, whose parts are no smaller than others'.
    """
    peaks: dict[Phase, int] = {}
    job, stage = job.shortened(stage)
    replica = heaviest_replica(job, stage)
    with (
        alone_as(job, stage, replica) as world,
        open_bench(job.device_kind, Source.TRACED) as bench,
    ):

        def read(phase: Phase) -> None:
            peaks[phase] = bench.meter.peak_bytes
            bench.meter.reset_peak()

        trainer = FewMicroBatches(job, world, read)
        trainer.warm_up()
        gc.collect()
        peaks.clear()
        bench.meter.reset_peak()
        trainer.run_step(1)
        each = [bench.rounded(b.nbytes) for b in standing_buffers(trainer.schedule)]
        for phase in peaks:
            peaks[phase] += trainer.num_left_out * sum(each)
        del trainer
    gc.collect()
    return peaks


@contextmanager
def alone_as(job: ReplayJob, stage: int, replica: int) -> Iterator[World]:
    """Be the first of a tensor group, in a job of which no other rank is there."""
    num_stages = len(job.slices)
    place = stage * job.num_replicas + replica
    num_ranks = num_stages * job.num_replicas * job.num_parts
    with single_process(place * job.num_parts, num_ranks):
        yield join_world(num_stages, job.num_replicas, CPU, num_parts=job.num_parts)


def heaviest_replica(job: ReplayJob, stage: int) -> int:
    """Replica whose slices hold most, the first of equals.

    Slices are of one size, but what fills parts of parameters up is owned by some, and
    every piece takes blocks of its own. Two tensors of a piece's numbers are counted,
    and one number more, as Adam has them. On the host they count for nothing.
    """
    part = job.slices[stage]
    on_host = part.optimizer_home is OptimizerHome.HOST
    if on_host or part.sharding is Sharding.NONE:
        return 0
    with (
        alone_as(job, stage, 0) as world,
        open_bench(job.device_kind, Source.TRACED) as bench,
    ):
        share = Share(num_replicas=job.num_replicas)
        built = build_stage(
            job.workload, part, CPU, share=share, mesh=world.tensor_mesh
        )

        def owned_bytes(replica: int) -> int:
            return sum(
                2 * bench.rounded(4 * (place.end - place.first)) + bench.rounded(4)
                for buffer in chain.from_iterable(built.flat.values())
                for _, place in buffer.of_replica(replica).pieces()
            )

        return max(range(job.num_replicas), key=owned_bytes)


def batch_like(boundaries: Boundaries) -> MakeBatch:
    """A function that makes batches of the right shape, without values."""

    def make(step: int, first: int, count: int) -> Batch:
        del step, first, count
        inputs = tuple(spec.empty(CPU) for spec in boundaries.inputs)
        targets = boundaries.targets.empty(CPU)
        return (inputs[0] if len(inputs) == 1 else inputs), targets

    return make
