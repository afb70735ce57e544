"""A chain of two stages whose bytes are known twice: from real ranks, and replayed.

In: the number of a rank. Out: peaks in bytes. Called by `self_check`, in a process for
each rank, which is an emulated device, and in its own for the replay.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.errors import ReplayDisagreesError
from plimsoll_profiler.ranks.rank_replay import ReplayJob, replay_stage
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.workload import AdamW, Layer, Workload

WIDTH, DEPTH, MICRO_BATCH, NUM_MICRO_BATCHES = 64, 6, 32, 8
CPU = torch.device("cpu")


def toy() -> Workload:
    """A chain whose boundaries are large against its parameters."""
    linear, last = partial(nn.Linear, WIDTH, WIDTH), partial(nn.Linear, WIDTH, 1)
    middle = tuple(
        Layer(name=f"layer.{place}", factory=linear, kind="layer")
        for place in range(DEPTH - 1)
    )
    return Workload(
        layers=(*middle, Layer(name="last", factory=last, kind="last")),
        loss=nn.functional.mse_loss,
        batch=points,
        optimizer=AdamW(),
    )


def points(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Vectors that rise with step and sample; the target is their first number."""
    x = torch.arange(first, first + count).float().unsqueeze(1).expand(count, WIDTH)
    x = torch.sin(x + step)
    return x, x[:, :1]


def job() -> ReplayJob:
    """The toy in two stages; the second recomputes a layer from an offloaded input."""
    workload = toy()
    half = DEPTH // 2
    second = frozenset((half,))
    return ReplayJob(
        workload=workload,
        slices=(
            StageSlice(first_layer=0, end_layer=half),
            StageSlice(
                first_layer=half, end_layer=DEPTH, recomputed=second, offloaded=second
            ),
        ),
        num_replicas=1,
        num_micro_batches=NUM_MICRO_BATCHES,
        boundaries=boundaries_of(workload, MICRO_BATCH),
        device_kind=DeviceKind.EMULATED,
    )


def capped(work: ReplayJob) -> ReplayJob:
    """The job with one micro-batch in flight everywhere."""
    slices = [replace(part, in_flight_cap=1) for part in work.slices]
    return replace(work, slices=slices)


def run_rank(rank: int, store: str) -> int:
    """Steady peak of one rank that runs for real, bytes.

    Raises:
        ReplayDisagreesError: a cap on micro-batches in flight leaves the first stage's
            peak as it is.
        IncompatibleError: this torch has no means of such a cap.
    """
    torch.set_num_threads(1)
    work = job()
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=len(work.slices)
    )
    peak = steady_peak(work)
    if steady_peak(capped(work)) >= peak and rank == 0:
        raise ReplayDisagreesError(
            "a cap on micro-batches in flight has no effect (_num_stages of a schedule)"
        )
    dist.barrier()
    dist.destroy_process_group()
    return peak


def steady_peak(work: ReplayJob) -> int:
    """Peak of the second step of this rank, in a group with the others, bytes."""
    device = EmulatedDevice()
    gc.collect()
    before = device.current_bytes
    trainer = Trainer(
        work.workload,
        slices=work.slices,
        boundaries=work.boundaries,
        num_micro_batches=work.num_micro_batches,
        world=join_world(len(work.slices), work.num_replicas, CPU),
    )
    trainer.run_step(0)
    gc.collect()
    device.reset_peak()
    trainer.run_step(1)
    return device.peak_bytes - before


def replayed_peaks(work: ReplayJob) -> list[int]:
    """Peak of a rank of each stage as its replay finds it, bytes."""
    return [
        max(replay_stage(work, stage).values()) for stage in range(len(work.slices))
    ]
