"""The replay of a rank holds what the real rank holds."""

from __future__ import annotations

import gc
import re

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler import self_check
from plimsoll_profiler.errors import ReplayDisagreesError
from plimsoll_profiler.rank_replay import ReplayJob, replay_stage
from plimsoll_trainer.boundaries import boundaries_of
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.stage import StageSlice
from plimsoll_trainer.training import Trainer
from plimsoll_trainer.world import join_world
from tests.support.ranks import run_on_device, run_ranks
from tests.support.workloads import a_gpt

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
TOLERANCE_BYTES = 1024
"""Losses and norms that only a real step hands out."""


def a_job(
    cuts: tuple[int, ...], replicas: int, recomputed: tuple[int, ...], precision: str
) -> ReplayJob:
    """Spread a small GPT."""
    workload = a_gpt(depth=4, precision=precision)
    ends = (*cuts[1:], 6)
    return ReplayJob(
        workload=workload,
        slices=[
            StageSlice(
                first_layer=first,
                end_layer=end,
                recomputed=frozenset(i for i in recomputed if first <= i < end),
            )
            for first, end in zip(cuts, ends, strict=True)
        ],
        num_replicas=replicas,
        num_micro_batches=8 // replicas,
        boundaries=boundaries_of(workload, 2),
        device_kind=DeviceKind.EMULATED,
    )


def real_peak(
    cuts: tuple[int, ...], replicas: int, recomputed: tuple[int, ...], precision: str
) -> int:
    """Run one rank and return its steady peak."""
    job, device = a_job(cuts, replicas, recomputed, precision), EmulatedDevice()
    before = device.current_bytes
    trainer = Trainer(
        job.workload,
        slices=job.slices,
        boundaries=job.boundaries,
        num_micro_batches=job.num_micro_batches,
        world=join_world(len(cuts), replicas, CPU),
    )
    trainer.run_step(0)
    gc.collect()
    device.reset_peak()
    trainer.run_step(1)
    return device.peak_bytes - before


def replayed_peaks(
    cuts: tuple[int, ...], replicas: int, recomputed: tuple[int, ...], precision: str
) -> list[int]:
    """Replay a rank of every stage in a process that is an emulated device."""
    job = a_job(cuts, replicas, recomputed, precision)
    return [max(replay_stage(job, stage).values()) for stage in range(len(cuts))]


@pytest.mark.parametrize(
    ("cuts", "replicas", "recomputed", "precision"),
    [
        ((0,), 1, (), "fp32"),
        ((0, 3), 1, (1, 4), "fp32"),
        ((0, 1, 3, 5), 1, (), "fp32"),
        ((0, 4), 2, (2,), "fp32"),
        ((0, 3), 1, (), "bf16"),
    ],
    ids=["one rank", "recomputed", "four stages", "replicas", "bf16"],
)
def test_a_replay_holds_what_real_ranks_hold(
    cuts: tuple[int, ...], replicas: int, recomputed: tuple[int, ...], precision: str
) -> None:
    """Every rank's peak, to a kilobyte of scalars, workspaces of kernels included."""
    how = (cuts, replicas, recomputed, precision)
    real = run_ranks(real_peak, len(cuts) * replicas, *how)
    replayed = run_on_device(replayed_peaks, *how)
    for rank, peak in enumerate(real):
        assert abs(peak - replayed[rank // replicas]) <= TOLERANCE_BYTES, rank


@pytest.fixture(scope="module")
def real_peaks() -> list[int]:
    """Run the toy of the self-check once, in two processes of its own."""
    return self_check.real_peaks()


def test_the_self_check_holds_on_this_torch(
    real_peaks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ranks of the toy agree with their replay."""
    monkeypatch.setattr(self_check, "real_peaks", lambda: real_peaks)
    for real, replayed in self_check.self_check():
        assert abs(real - replayed) <= TOLERANCE_BYTES


def disagree(job: ReplayJob, stage: int) -> dict[str, int]:
    """Replay something else."""
    del job
    return {"backward": 10**9 + stage}


def test_the_self_check_names_torch_when_it_fails(
    real_peaks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that holds something else is told apart, and the version is named."""
    monkeypatch.setattr(self_check, "real_peaks", lambda: real_peaks)
    monkeypatch.setattr(self_check, "replay_stage", disagree)
    with pytest.raises(ReplayDisagreesError, match=re.escape(torch.__version__)):
        self_check.self_check()
