"""Replays and rehearsals of placements hold what real ranks hold."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_profiler.ranks.placed_replay import PlacedReplayJob, replay_device
from plimsoll_profiler.ranks.rehearsal import RehearsalJob, rehearse
from plimsoll_trainer.devices.device import HostDevice
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.process.placed_run import PlacedAssignment, PlacedSteps
from plimsoll_trainer.workload import Workload
from tests.support.placed_plans import assigned, placed_plan, placement_of
from tests.support.ranks import run_on_device, run_ranks
from tests.support.skips import MODELS
from tests.support.workloads import a_gpt

pytestmark = pytest.mark.slow
WORKLOADS: dict[str, Callable[[], Workload]] = {
    "dropout": partial(a_gpt, depth=2, dropout=0.1),
    "u-net": MODELS["u-net"],
    "masked": MODELS["masked"],
}
NUM_DEVICES = 2
STEPS = {Phase.BACKWARD, Phase.GRADIENT_NORM, Phase.OPTIMIZER_STEP}
TOLERANCE_BYTES = 1024
"""Room for losses and norms that a replay does not keep."""


def work_of(name: str) -> PlacedAssignment:
    """Work of the ranks of a model."""
    return assigned(WORKLOADS[name](), NUM_DEVICES)


def peaks_of(found: Rehearsal) -> dict[Phase, int]:
    """Bytes of the device by phase."""
    return {one.phase: one.device_bytes for one in found.observation.peaks}


def real_peaks() -> list[int]:
    """Steady peak of this rank, of each model."""
    world, device = join_world(NUM_DEVICES, 1, torch.device("cpu")), EmulatedDevice()
    found = []
    for name in WORKLOADS:
        gc.collect()
        device.leave_out()
        steps = PlacedSteps(work_of(name), world, lambda _: None)
        steps.run_step(0)
        device.reset_peak()
        steps.run_step(1)
        found.append(device.peak_bytes)
        del steps
    return found


def replayed_peaks() -> list[list[dict[Phase, int]]]:
    """Peaks of all devices of each model, by replay."""
    kind = DeviceKind.EMULATED
    jobs = [PlacedReplayJob(assignment=work_of(n), device_kind=kind) for n in WORKLOADS]
    return [[replay_device(job, place) for place in range(NUM_DEVICES)] for job in jobs]


def rehearsed_peaks(cap_bytes: int = 0) -> list[list[Rehearsal]]:
    """Rehearsals of all devices of each model."""
    if cap_bytes:
        EmulatedDevice().set_cap(cap_bytes)
    found = []
    for name in WORKLOADS:
        work = work_of(name)
        placement = placement_of(work.workload, NUM_DEVICES)
        plan = placed_plan(placement, entrypoint="tests.support.workloads:a_gpt")
        found.append(
            [
                rehearse(
                    RehearsalJob(
                        plan=plan,
                        workload=work.workload,
                        assignment=work,
                        rank=rank,
                        device=HostDevice(),
                    )
                )
                for rank in range(NUM_DEVICES)
            ]
        )
    return found


def test_a_replay_holds_what_real_ranks_hold() -> None:
    """To the byte, and no less than the planner's curve, which has no workspaces here.

    Each phase of a step has a peak of its own.
    """
    real = run_ranks(real_peaks, NUM_DEVICES)
    replayed = run_on_device(replayed_peaks)
    rehearsed = run_on_device(rehearsed_peaks)
    for place, name in enumerate(WORKLOADS):
        curve = Curve(work_of(name).placed)
        for device, peaks in enumerate(replayed[place]):
            assert max(peaks.values()) == real[device][place]
            assert max(peaks.values()) >= int(curve.peak[device])
            assert peaks.keys() == STEPS
            alone = peaks_of(rehearsed[place][device])
            assert alone.keys() == {*STEPS, Phase.BUILD, Phase.FIRST_STEP}
            for phase, peak in peaks.items():
                assert abs(alone[phase] - peak) <= TOLERANCE_BYTES, (name, phase)


def test_a_rehearsal_says_when_a_device_is_full() -> None:
    """Out of memory is a verdict, with the phase and the bytes that were asked for."""
    found = run_on_device(rehearsed_peaks, 2**14)
    for ranks in found:
        for rehearsal in ranks:
            assert not rehearsal.fits
            assert rehearsal.full_device is not None
            assert rehearsal.full_device.phase in {Phase.BUILD, Phase.FORWARD}
