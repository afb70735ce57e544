"""A replay of one rank of a tensor group tells what the real ones hold."""

from __future__ import annotations

import gc

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.model_profile import DeviceKind, Precision
from plimsoll_planner.records.plan import Phase
from plimsoll_profiler.ranks.rank_replay import ReplayJob, replay_stage
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from tests.support.cases import at_night
from tests.support.ranks import run_on_device, run_ranks
from tests.support.split_workloads import a_split_gpt
from tests.support.workloads import SEQUENCE
from tests.training_job.test_transparency import CPU, Kind

SCALARS_BYTES = 128
"""Sums, counts and norms that a trace does not hold as long."""
WIDTH = 128
WIDE = ("width", WIDTH)
KINDS = {
    "two parts": Kind(cuts=(0, 5), parts=2, make=a_split_gpt, workload=(WIDE,)),
    "two stages of two parts": Kind(
        cuts=(0, 2, 5), parts=2, make=a_split_gpt, workload=(WIDE, ("tied", False))
    ),
    "two stages of two parts of sequences": Kind(
        cuts=(0, 2, 5),
        parts=2,
        sequence=True,
        make=a_split_gpt,
        workload=(WIDE, ("tied", False)),
    ),
    "replicas that divide state, recomputed, in bf16": Kind(
        cuts=(0, 5),
        parts=2,
        replicas=2,
        divided=frozenset((0,)),
        recomputed=frozenset((1, 3)),
        make=a_split_gpt,
        workload=(WIDE, ("precision", Precision.BF16)),
    ),
}
QUICK_KINDS = ("two parts",)
SIMILAR = ("two stages of two parts",)
"""The kind by sequences has the same stages and parts."""
Peaks = dict[Phase, int]


def real_peaks(kind: Kind) -> Peaks:
    """Run as one rank; the peaks of a steady step."""
    device, workload = EmulatedDevice(), kind.make(**dict(kind.workload))
    peaks: Peaks = {}

    def read(phase: Phase) -> None:
        peaks[phase] = device.peak_bytes
        device.reset_peak()

    trainer = Trainer(
        workload,
        slices=kind.slices(),
        boundaries=boundaries_of(workload, kind.micro_batch),
        num_micro_batches=kind.global_batch // kind.replicas // kind.micro_batch,
        world=join_world(kind.num_stages, kind.replicas, CPU, num_parts=kind.parts),
        on_phase=read,
    )
    for step in range(3):
        gc.collect()
        device.reset_peak()
        peaks.clear()
        trainer.run_step(step)
    return peaks


def replayed_peaks(kind: Kind, stage: int) -> Peaks:
    """Replay one rank of a stage."""
    workload = kind.make(**dict(kind.workload))
    job = ReplayJob(
        workload=workload,
        slices=kind.slices(),
        num_replicas=kind.replicas,
        num_parts=kind.parts,
        num_micro_batches=kind.global_batch // kind.replicas // kind.micro_batch,
        boundaries=boundaries_of(workload, kind.micro_batch),
        device_kind=DeviceKind.EMULATED,
    )
    return replay_stage(job, stage)


@pytest.mark.parametrize("kind", at_night(SIMILAR, KINDS, QUICK_KINDS))
def test_a_replay_tells_the_peaks_of_a_tensor_group(kind: Kind) -> None:
    """Of every phase to the byte, but for scalars; of several ranks the least counts.

    Threads of gloo let go of a message a moment late now and then, on all ranks.
    """
    message_bytes = kind.micro_batch * SEQUENCE * WIDTH * 4
    if ("precision", Precision.BF16) in kind.workload:
        message_bytes //= 2
    real = run_ranks(real_peaks, kind.num_ranks, kind)
    of_stage = kind.replicas * kind.parts
    for stage in range(kind.num_stages):
        ranks = real[stage * of_stage : (stage + 1) * of_stage]
        replayed = run_on_device(replayed_peaks, kind, stage)
        assert replayed
        for phase, found in replayed.items():
            least = min(rank[phase] for rank in ranks)
            late_bytes = message_bytes if least - found > SCALARS_BYTES else 0
            assert abs(found + late_bytes - least) <= SCALARS_BYTES, (stage, phase)
