"""Peaks are kept by phase, and the first step by itself."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.devices.device import UsedBytes
from plimsoll_trainer.devices.peaks import STEP_PHASES, PeakWatch


class Script:
    """A device whose peaks are written down beforehand."""

    kind = DeviceKind.EMULATED
    torch_device = torch.device("cpu")
    backend = "gloo"
    product = "script"
    capacity_bytes = 100
    allocated_bytes = 0

    def __init__(self, *peaks: int) -> None:
        """Give these peaks, one after the other."""
        self._peaks = iter(peaks)

    def read_peak(self) -> UsedBytes:
        """Give the next."""
        peak = next(self._peaks)
        return UsedBytes(allocated=peak, reserved=peak, device=peak)

    def trim(self) -> None:
        """Do nothing: nothing is kept."""


def test_the_first_step_is_a_phase_of_its_own() -> None:
    """Later steps keep their phases apart, each with its largest peak."""
    watch = PeakWatch(Script(5, 60, 30, 40, 50, 31, 41, 51, 30, 42))
    watch(Phase.BUILD)
    for _ in range(3):
        for phase in STEP_PHASES:
            watch(phase)
    assert watch.device_bytes == {
        Phase.BUILD: 5,
        Phase.FIRST_STEP: 60,
        Phase.BACKWARD: 51,
        Phase.GRADIENT_NORM: 31,
        Phase.OPTIMIZER_STEP: 42,
    }
    assert [peak.phase for peak in watch.observed()] == list(watch.device_bytes)


def test_the_phase_under_way_is_known() -> None:
    """The phase of an error follows from the one that ended last."""
    watch = PeakWatch(Script(*range(9)))
    seen = [watch.under_way]
    for phase in (Phase.BUILD, *STEP_PHASES):
        watch(phase)
        seen.append(watch.under_way)
    watch.begin(Phase.CHECKPOINT_SAVE)
    seen.append(watch.under_way)
    assert seen == [
        Phase.BUILD,
        Phase.FORWARD,
        Phase.GRADIENT_NORM,
        Phase.OPTIMIZER_STEP,
        Phase.FORWARD,
        Phase.CHECKPOINT_SAVE,
    ]
