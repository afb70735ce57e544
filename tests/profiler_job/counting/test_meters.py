"""A place to probe on, opened and closed."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_profiler.errors import NoDeviceError
from plimsoll_profiler.probing.messages import ProbeRequest
from plimsoll_profiler.probing.prober import Prober
from plimsoll_trainer.errors import WorkloadError
from tests.support.workloads import a_sequential


def test_what_reads_a_number_cannot_be_traced() -> None:
    """Adafactor does, of its step's tensors; the line says to measure instead."""
    prober = Prober(replace(a_sequential(), optimizer=torch.optim.Adafactor), [2])
    request = ProbeRequest(case=0, micro_batch=2)
    with (
        pytest.raises(WorkloadError, match="have none: profile with --source measured"),
        open_bench(DeviceKind.CUDA, Source.TRACED) as bench,
    ):
        prober.probe(request, bench)


def test_a_gpu_that_is_not_there_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the message names what else can be done."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with (
        pytest.raises(NoDeviceError, match="--source traced"),
        open_bench(DeviceKind.CUDA, Source.MEASURED),
    ):
        pass


def test_garbage_of_before_is_collected_again_behind_a_trace() -> None:
    """Inside, collections walk what the trace has made, and nothing else."""
    gc.unfreeze()  # what was there before the first test
    with open_bench(DeviceKind.EMULATED, Source.TRACED):
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
