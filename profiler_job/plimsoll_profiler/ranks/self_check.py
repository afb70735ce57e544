"""Replays a toy and runs it for real: do they still agree on this torch?

`python -m plimsoll_profiler.ranks.self_check` runs a chain of two stages in two
processes on the emulated device, replays both ranks, and compares their peaks. It fails
when a new torch release keeps alive, or lets go of, something else than the replay
believes.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.errors import ReplayDisagreesError
from plimsoll_profiler.ranks.rank_replay import ReplayJob, replay_stage
from plimsoll_trainer.emulated.device import EmulatedDevice, environment
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.workload import AdamW, Layer, Workload

WIDTH, DEPTH, MICRO_BATCH, NUM_MICRO_BATCHES = 64, 6, 32, 8
TOLERANCE_BYTES = 1024
"""Scalars that only one side holds, such as the losses that a real step returns."""
CPU = torch.device("cpu")


def toy() -> Workload:
    """Build a chain whose boundaries are large against its parameters."""
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
    """Make vectors that rise with step and sample; the target is their first number."""
    x = torch.arange(first, first + count).float().unsqueeze(1).expand(count, WIDTH)
    x = torch.sin(x + step)
    return x, x[:, :1]


def job() -> ReplayJob:
    """Cut the toy into two stages, the second of which recomputes a layer."""
    workload = toy()
    half = DEPTH // 2
    return ReplayJob(
        workload=workload,
        slices=(
            StageSlice(first_layer=0, end_layer=half),
            StageSlice(
                first_layer=half, end_layer=DEPTH, recomputed=frozenset((half,))
            ),
        ),
        num_replicas=1,
        num_micro_batches=NUM_MICRO_BATCHES,
        boundaries=boundaries_of(workload, MICRO_BATCH),
        device_kind=DeviceKind.EMULATED,
    )


def run_rank(rank: int, store: str) -> int:
    """Run one rank for real and return its steady peak in bytes."""
    torch.set_num_threads(1)
    method = f"file://{store}"
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=2)
    work, device = job(), EmulatedDevice()
    gc.collect()
    before = device.current_bytes
    trainer = Trainer(
        work.workload,
        slices=work.slices,
        boundaries=work.boundaries,
        num_micro_batches=work.num_micro_batches,
        world=join_world(2, 1, CPU),
    )
    trainer.run_step(0)
    gc.collect()
    device.reset_peak()
    trainer.run_step(1)
    dist.barrier()
    dist.destroy_process_group()
    return device.peak_bytes - before


def real_peaks() -> list[int]:
    """Start both ranks and return their peaks."""
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(  # noqa: S603 - our own module
                (
                    *(sys.executable, "-m", "plimsoll_profiler.ranks.self_check"),
                    *("--rank", str(rank), "--store", str(Path(folder) / "store")),
                ),
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | environment(0) | {"OMP_NUM_THREADS": "1"},
            )
            for rank in range(2)
        ]
        printed = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            raise ReplayDisagreesError(
                f"two ranks of a toy did not run on torch {torch.__version__}; what "
                "they said stands above"
            )
    return [int(text) for text in printed]


def self_check() -> list[tuple[int, int]]:
    """Real and replayed peak of each rank, bytes.

    Raises:
        ReplayDisagreesError: they differ; names the torch version.
    """
    work = job()
    replayed = [max(replay_stage(work, stage).values()) for stage in range(2)]
    pairs = list(zip(real_peaks(), replayed, strict=True))
    for rank, (real, predicted) in enumerate(pairs):
        if abs(real - predicted) > TOLERANCE_BYTES:
            raise ReplayDisagreesError(
                f"on torch {torch.__version__} rank {rank} of a toy held {real} bytes, "
                f"but its replay {predicted}: predictions for this torch are not to be "
                "trusted; use a release that Plimsoll is tested with"
            )
    return pairs


def main() -> int:
    """Check, or be one of the two ranks."""
    parser = argparse.ArgumentParser(prog="plimsoll_profiler.ranks.self_check")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--store")
    options = parser.parse_args()
    if options.rank is not None:
        print(run_rank(options.rank, options.store))
        return ExitCode.DONE
    try:
        pairs = self_check()
    except ReplayDisagreesError as error:
        print(error, file=sys.stderr)
        return ExitCode.FAILED
    for rank, (real, replayed) in enumerate(pairs):
        print(f"rank {rank}: {real} bytes held, {replayed} replayed")
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
