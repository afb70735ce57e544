"""Passes forward alone, under the plan as it is: the loss on other data.

    round 0     replica 0: samples 0 .. b-1     replica 1: b .. 2b-1
    round 1     replica 0: 2b .. 3b-1           replica 1: what is left, may be fewer

Each stage receives, runs its layers as they are shared, divided and gathered, and sends
on; one micro-batch at a time. All replicas make the same number of passes, because
layers of which they divide the parameters are gathered by all of them: one that has no
samples left runs the first ones again, which count for nothing.

How large a value of fewer samples is, its sender knows alone: one that follows from
parameters has the same size whatever the number, and of another the second dimension
may count samples. So shapes are sent in front of them; those of a whole micro-batch
are known.

A rank needs no more memory than in a training step: gradients and optimizer state stay
where they are, and of one micro-batch there is what a layer computes inside, without
what training keeps for the backward pass. The last layer and its loss are taken in
pieces where the plan does so.

In: a `Trainer` between two steps. Out: the loss, over what counts. All ranks call this
together; `process.evaluations` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.batches import make_batch
from plimsoll_trainer.engine.boundaries import cast_inputs
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.evaluation import Evaluation
from plimsoll_trainer.torch_internals.pipeline import receive, send, standing_inputs


def evaluate(
    trainer: Trainer, evaluation: Evaluation, step: int
) -> tuple[Tensor, Tensor]:
    """Loss of the model as it is now, on the samples of an evaluation.

    Args:
        trainer: of this rank, between two steps.
        evaluation: the samples.
        step: steps finished; layers that draw numbers all the same draw by it.

    Returns:
        The mean loss and what it is over, on every rank. Where losses are means, the
        mean over all samples.
    """
    world = trainer.world
    totals = torch.zeros(
        (2, world.num_replicas), dtype=torch.float64, device=world.device
    )
    trainer.stage.step = step
    with trainer.stage.evaluating():
        for first, count, counts in rounds(
            evaluation.number, trainer.micro_batch, world.replica, world.num_replicas
        ):
            loss = pass_forward(trainer, evaluation, first, count)
            if loss is not None and counts and world.part == 0:
                totals[0, world.replica] += loss.double()
                totals[1, world.replica] += trainer.stage.count
    dist.all_reduce(totals)
    total, count_all = totals.sum(1)
    return total / count_all, count_all


def rounds(
    num_samples: int, micro_batch: int, replica: int, num_replicas: int
) -> Iterator[tuple[int, int, bool]]:
    """Yield the passes of a replica: first sample, how many, and whether they count."""
    num_passes = -(-num_samples // micro_batch)
    for turn in range(-(-num_passes // num_replicas)):
        place = turn * num_replicas + replica
        counts = place < num_passes
        first = place * micro_batch if counts else 0
        yield first, min(micro_batch, num_samples - first), counts


def pass_forward(
    trainer: Trainer, evaluation: Evaluation, first: int, count: int
) -> Tensor | None:
    """Run one micro-batch through this stage; its loss, on the last one."""
    world, stage = trainer.world, trainer.stage
    stage.first_sample = first
    stage.count.zero_()
    inputs: tuple[Tensor, ...] = ()
    targets: Tensor | None = None
    if world.is_first or world.is_last:
        workload = replace(trainer.workload, batch=evaluation.batch)
        x, y = make_batch(workload, 0, first, count)
        if world.is_first:
            with host_memory():
                x = cast_inputs(x, workload)
            inputs = tuple(map(trainer.on_device, x))
        if world.is_last:
            targets = trainer.on_device(y)
    output = stage(*(inputs or received(trainer, count)), targets=targets)
    if world.is_last:
        loss: Tensor = output
        return loss
    peer = world.rank_of(world.stage + 1, world.replica, world.part)
    for sent in output if isinstance(output, tuple) else (output,):
        if count < trainer.micro_batch and sent.ndim:
            shape = torch.tensor(sent.shape, device=world.device)
            send(shape, peer, world.pipeline_group)
        send(sent, peer, world.pipeline_group)
    return None


def received(trainer: Trainer, count: int) -> tuple[Tensor, ...]:
    """What the stage before sends of some samples.

    In the buffers that torch 2.11 to 2.14 keep for a micro-batch anyway, if there are
    some.
    """
    world = trainer.world
    specs = trainer.boundaries.crossing(trainer.part.first_layer)
    there = standing_inputs(trainer.schedule)
    whole = there or [spec.empty(world.device) for spec in specs]
    peer = world.rank_of(world.stage - 1, world.replica, world.part)
    values = []
    for room in whole:
        part = room
        if count < trainer.micro_batch and room.ndim:
            shape = torch.empty(room.ndim, dtype=torch.int64, device=world.device)
            receive(shape, peer, world.pipeline_group)
            part = part_of(room, shape.tolist())
        values.append(receive(part, peer, world.pipeline_group))
    return tuple(values)


def part_of(room: Tensor, shape: Sequence[int]) -> Tensor:
    """The first numbers of a contiguous buffer, as a tensor of some shape."""
    return room.view(-1)[: math.prod(shape)].view(tuple(shape))
