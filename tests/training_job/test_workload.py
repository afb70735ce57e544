"""A workload says what it holds, whatever machine is asked."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_planner.records.model_profile import DeviceKind, OptimizerMode
from plimsoll_trainer.workload import AdamW, optimizer_mode

CUDA, EMULATED = DeviceKind.CUDA, DeviceKind.EMULATED
FOREACH, FUSED, LOOP = OptimizerMode.FOREACH, OptimizerMode.FUSED, OptimizerMode.LOOP


@pytest.mark.parametrize(
    ("make", "device_kind", "mode"),
    [
        (torch.optim.AdamW, CUDA, FOREACH),
        (torch.optim.AdamW, EMULATED, LOOP),
        (torch.optim.RMSprop, CUDA, FOREACH),
        (partial(torch.optim.SGD, lr=0.1), CUDA, FOREACH),
        (partial(torch.optim.SGD, lr=0.1), EMULATED, LOOP),
        (partial(torch.optim.AdamW, fused=True), EMULATED, FUSED),
        (partial(torch.optim.AdamW, fused=False), CUDA, LOOP),
        (partial(torch.optim.AdamW, foreach=False), CUDA, LOOP),
        (partial(torch.optim.AdamW, foreach=True), EMULATED, FOREACH),
        (partial(torch.optim.AdamW, differentiable=True), CUDA, LOOP),
        (torch.optim.Adafactor, CUDA, LOOP),
        (AdamW(), CUDA, FUSED),
        (AdamW(mode=LOOP), CUDA, LOOP),
    ],
)
def test_the_mode_of_an_optimizer_is_that_of_the_device_planned_for(
    make: Any, device_kind: DeviceKind, mode: OptimizerMode
) -> None:
    """Torch's default is lists on a GPU, also while a trace for it lies on the CPU."""
    optimizer = make([nn.Parameter(torch.zeros(2, 2))])
    assert optimizer_mode(optimizer, device_kind) is mode
