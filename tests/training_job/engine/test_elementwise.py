"""Optimizers that replicas may divide, and the bytes that each number has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn, optim

from plimsoll_planner.records.model_profile import OptimizerMode
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.elementwise import bytes_per_number, is_elementwise
from plimsoll_trainer.workload import AdamW, MakeOptimizer
from tests.support.ranks import run_on_device

CPU = torch.device("cpu")


class Lamb(optim.SGD):
    """Steps as long as the parameter is, as LAMB does."""

    def step(self, closure: Any = None) -> Any:
        """Scale by the norms of the parameter and its gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(parameter.detach().norm() / parameter.grad.norm())
        return super().step(closure)


class KeepsCopies(optim.SGD):
    """Copies its parameters as it is made, and pulls them back there."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        """Copy them."""
        super().__init__(parameters, lr=0.1)
        for parameter in parameters:
            self.state[parameter]["begun"] = parameter.detach().clone()

    def step(self, closure: Any = None) -> Any:
        """Step, and go half the way back."""
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.lerp_(self.state[parameter]["begun"], 0.5)


def on_copies(parameters: Sequence[nn.Parameter]) -> optim.Optimizer:
    """Make an optimizer of other tensors than those given."""
    return optim.SGD([nn.Parameter(p.detach().clone()) for p in parameters], lr=0.1)


ALONE: list[MakeOptimizer] = [
    *(AdamW(mode=mode) for mode in OptimizerMode),
    optim.Adam,
    partial(optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1),
    partial(optim.RMSprop, momentum=0.5, centered=True),
    partial(optim.Adagrad, initial_accumulator_value=0.5),
    optim.NAdam,
]
TOGETHER: list[MakeOptimizer] = [optim.Adafactor, optim.Muon, partial(Lamb, lr=0.1)]


@pytest.mark.parametrize("make", ALONE)
def test_an_optimizer_of_single_numbers_may_be_divided(make: MakeOptimizer) -> None:
    """Its groups depend on shapes that no piece has, and still its steps are equal."""
    assert is_elementwise(make)


@pytest.mark.parametrize("make", [*TOGETHER, KeepsCopies, on_copies])
def test_others_may_not(make: MakeOptimizer) -> None:
    """Those that use norms or rows, or that a piece does not suit."""
    assert not is_elementwise(make)


@pytest.mark.parametrize(
    ("make", "num_bytes"),
    [
        (AdamW(), 8),
        (partial(optim.Adam, amsgrad=True), 12),
        (partial(optim.SGD, lr=0.1), 0),
        (partial(optim.SGD, lr=0.1, momentum=0.9), 4),
        (optim.Adagrad, 4),
    ],
)
def test_bytes_of_a_number(make: MakeOptimizer, num_bytes: int) -> None:
    """Without what a parameter has once; a master in fp32 is 4 bytes more."""
    assert bytes_per_number(make, torch.float32, CPU) == num_bytes
    assert bytes_per_number(make, torch.bfloat16, CPU) == num_bytes + 4


def bytes_of_trials() -> int:
    """Device memory that both trials take, most at a time; runs in a forked process."""
    device = EmulatedDevice()
    before = device.current_bytes
    device.reset_peak()
    assert is_elementwise(AdamW())
    assert bytes_per_number(AdamW(), torch.float32, CPU) == 8
    return device.peak_bytes - before


def test_a_trial_takes_no_room_of_a_device() -> None:
    """Which may be smaller than what is tried."""
    assert run_on_device(bytes_of_trials) < 1024
