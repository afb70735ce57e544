"""Replays of placements hold what real ranks hold."""

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
from plimsoll_profiler.ranks.placed_replay import PlacedReplayJob, replay_device
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.process.placed_run import PlacedAssignment, PlacedSteps
from plimsoll_trainer.workload import Workload
from tests.support.placed_plans import assigned
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


def work_of(name: str) -> PlacedAssignment:
    """Work of the ranks of a model."""
    return assigned(WORKLOADS[name](), NUM_DEVICES)


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


def test_a_replay_holds_what_real_ranks_hold() -> None:
    """To the byte, and no less than the planner's curve, which has no workspaces here.

    Each phase of a step has a peak of its own.
    """
    real = run_ranks(real_peaks, NUM_DEVICES)
    replayed = run_on_device(replayed_peaks)
    for place, name in enumerate(WORKLOADS):
        curve = Curve(work_of(name).placed)
        for device, peaks in enumerate(replayed[place]):
            assert max(peaks.values()) == real[device][place]
            assert max(peaks.values()) >= int(curve.peak[device])
            assert peaks.keys() == {
                *(Phase.BACKWARD, Phase.GRADIENT_NORM, Phase.OPTIMIZER_STEP)
            }
