"""Seconds of a layer that moves between two ranks, there and back, and its bytes.

In: the width of a GPT's blocks. Out: seconds of each move, with the schedule that is
made anew. Called by `benchmarks.online`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from plimsoll_planner.records.revision import Move
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.migration import rearrange
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from tests.support.ranks import run_ranks
from tests.support.workloads import a_gpt

DEPTH = 6
"""Blocks; with embedding and head the chain has two layers more."""
MOVED = 3
"""The layer that moves: the last of the first stage, then the first of the second."""
WARM_UP = 2
"""Moves that are not counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Moves:
    """Moves of one layer, and back."""

    parameters: int
    num_bytes: int
    """Parameters, buffers and optimizer state."""
    seconds: tuple[float, ...]
    """Of each, until both ranks are done."""


def timed_moves(width: int, count: int) -> Moves:
    """Move a block back and forth, between two steps each time."""
    return run_ranks(move_back_and_forth, 2, width, WARM_UP + count)[0]


def move_back_and_forth(width: int, count: int) -> Moves:
    """Be one of the two ranks."""
    workload = a_gpt(depth=DEPTH, width=width, tied=False)
    world = join_world(2, 1, torch.device("cpu"))
    there, here = slices(MOVED), slices(MOVED + 1)
    trainer = Trainer(
        workload,
        slices=here,
        boundaries=boundaries_of(workload, 2),
        num_micro_batches=4,
        world=world,
    )
    seconds: list[float] = []
    num_bytes = parameters = 0
    for step in range(count):
        trainer.run_step(step)
        if str(MOVED) in trainer.stage.layers:
            moved = trainer.stage.layers[str(MOVED)].parameters()
            parameters = sum(one.numel() for one in moved)
        source, after = (0, there) if step % 2 == 0 else (1, here)
        move = Move(layer=MOVED, source=source, destination=1 - source)
        dist.barrier()
        begin_s = time.perf_counter()
        num_bytes = rearrange(trainer, after, [move])
        dist.barrier()
        seconds.append(time.perf_counter() - begin_s)
    return Moves(
        parameters=parameters,
        num_bytes=num_bytes,
        seconds=tuple(seconds[WARM_UP:]),
    )


def slices(cut: int) -> Sequence[StageSlice]:
    """Two stages."""
    return (
        StageSlice(first_layer=0, end_layer=cut),
        StageSlice(first_layer=cut, end_layer=DEPTH + 2),
    )
