"""Sums of tensors show each difference, and take next to no memory."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.tensor_sums import SMALL_PIECE, Summer
from tests.support.ranks import run_on_device

CPU = torch.device("cpu")
VALUES = torch.arange(3 * SMALL_PIECE, dtype=torch.float32).reshape(3, -1)
SUMMER = Summer(CPU)


def changed(place: int, value: float) -> Tensor:
    """The values with another one in one place."""
    made = VALUES.clone()
    made.view(-1)[place] = value
    return made


@pytest.mark.parametrize(
    "other",
    [
        changed(0, -0.0),
        changed(0, 2.0**-149),
        changed(3 * SMALL_PIECE - 1, float("nan")),
        VALUES.flip(0),
        VALUES.flip(1),
        VALUES.reshape(-1),
        VALUES.to(torch.int32),
        -VALUES,
    ],
)
def test_a_sum_shows_each_difference(other: Tensor) -> None:
    """Of one bit, of places, of pieces, of shape, of type."""
    assert SUMMER.sum_of(other) != SUMMER.sum_of(VALUES)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(True),
        torch.empty(0, 3),
        torch.arange(9, dtype=torch.uint8)[1:],
        VALUES.bfloat16(),
        VALUES.double(),
        VALUES.to(torch.complex64),
        VALUES.t(),
        VALUES[:, ::2],
        VALUES[:1].expand(4, -1),
    ],
)
def test_a_sum_is_taken_of_all_types_and_layouts(tensor: Tensor) -> None:
    """Equal for equal values, and another one once a value changes."""
    assert SUMMER.sum_of(tensor) == SUMMER.sum_of(copy.deepcopy(tensor))
    if tensor.numel():
        other = tensor.clone()
        other[(-1,) * other.dim()] = 0 if other.dim() else False
        assert SUMMER.sum_of(tensor) != SUMMER.sum_of(other)


def bytes_on_top() -> int:
    """Device memory that summing takes, most at a time; runs in the forked process."""
    image = nn.Conv2d(64, 64, 5).to(memory_format=torch.channels_last).weight
    device = EmulatedDevice()
    before = device.current_bytes
    device.reset_peak()
    Summer(CPU).sum_of(image)
    return device.peak_bytes - before


def test_summing_holds_two_pieces() -> None:
    """However large the tensor is, and however it lies in memory."""
    assert run_on_device(bytes_on_top) < 2.5 * SMALL_PIECE * 8
