"""Counted work of a pass."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_profiler.counting.work_counter import count_work
from plimsoll_trainer.torch_internals.operators import FakeTensorMode


def test_a_matrix_product_is_two_flops_for_each_pair() -> None:
    """[3, 8] x [8, 16]: 2*3*8*16 FLOPs; reads both and writes the product."""
    left, right = torch.randn(3, 8), torch.randn(8, 16)
    work = count_work(lambda: left @ right)
    assert work.flop == 2 * 3 * 8 * 16
    assert work.traffic_bytes == 4 * (3 * 8 + 8 * 16 + 3 * 16)


def test_backward_is_twice_forward() -> None:
    """A linear layer's backward has two products of the same size."""
    layer = nn.Linear(8, 16, bias=False)
    x = torch.randn(3, 8, requires_grad=True)
    forward = count_work(lambda: layer(x))
    y = layer(x)
    backward = count_work(lambda: y.backward(torch.ones_like(y)))
    assert backward.flop == 2 * forward.flop


def test_views_move_nothing() -> None:
    """A transposed view and an uninitialised tensor are free."""
    x = torch.randn(4, 4)
    assert count_work(x.t).traffic_bytes == 0
    assert count_work(lambda: torch.empty(100)).traffic_bytes == 0


def test_fake_tensors_move_what_real_ones_do() -> None:
    """A ReLU reads dy and y and writes dx, and asks for a device that is no work."""

    def backward_bytes() -> float:
        x = torch.ones(3, 8, requires_grad=True)
        y = torch.relu(x)
        dy = torch.ones_like(y)
        return count_work(lambda: torch.autograd.grad(y, x, dy)).traffic_bytes

    with FakeTensorMode():
        assert backward_bytes() == 3 * 4 * (3 * 8)
    assert backward_bytes() == 3 * 4 * (3 * 8)
