"""The gradients of a layer lie in one buffer, and autograd adds into it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.engine.gradients import ALIGNMENT, attach_gradients, gradient_of

BF16 = torch.bfloat16


def grad_of(parameter: nn.Parameter) -> torch.Tensor:
    """Gradient, which is there."""
    assert parameter.grad is not None
    return parameter.grad


def test_each_parameter_sees_its_part_of_one_buffer() -> None:
    """Parts begin at multiples of the alignment and do not overlap."""
    parameters = [nn.Parameter(torch.ones(shape)) for shape in ((3, 5), (), (17,))]
    (buffer,) = attach_gradients(parameters, BF16)
    assert buffer.numel() == (1 + 1 + 2) * ALIGNMENT
    assert not buffer.any()
    for value, parameter in enumerate(parameters, start=1):
        grad = grad_of(parameter)
        assert grad.shape == parameter.shape
        assert grad.untyped_storage().data_ptr() == buffer.data_ptr()
        assert grad.storage_offset() % ALIGNMENT == 0
        grad.fill_(value)
    assert buffer.sum() == 15 * 1 + 1 * 2 + 17 * 3


def test_each_type_of_number_has_a_buffer() -> None:
    """They cannot be exchanged as one."""
    kinds = (torch.float32, torch.bfloat16, torch.float32)
    parameters = [nn.Parameter(torch.ones(4, dtype=kind)) for kind in kinds]
    buffers = attach_gradients(parameters, BF16)
    assert [buffer.dtype for buffer in buffers] == [torch.float32, torch.bfloat16]
    assert [grad_of(p).dtype for p in parameters] == list(kinds)


def test_what_has_a_gradient_or_needs_none_is_left_alone() -> None:
    """A shared parameter keeps the part that an earlier layer gave it."""
    shared = nn.Parameter(torch.ones(4))
    frozen = nn.Parameter(torch.ones(4), requires_grad=False)
    attach_gradients([shared], BF16)
    before = shared.grad
    own = nn.Parameter(torch.ones(2))
    (buffer,) = attach_gradients([shared, frozen, own], BF16)
    assert shared.grad is before
    assert frozen.grad is None
    assert buffer.numel() == ALIGNMENT
    assert attach_gradients([shared, frozen, own], BF16) == []


@pytest.mark.parametrize("transposed", [False, True])
def test_autograd_adds_in_place(transposed: bool) -> None:
    """Over several backward passes, in the parameter's own order in memory."""
    values = torch.ones(3, 2).t() if transposed else torch.ones(2, 3)
    parameter = nn.Parameter(values)
    (buffer,) = attach_gradients([parameter], BF16)
    weights = torch.arange(6.0).reshape(2, 3)
    for _ in range(2):
        torch.autograd.backward((parameter * weights).sum())
    assert grad_of(parameter).data_ptr() == buffer.data_ptr()
    assert torch.equal(grad_of(parameter), 2 * weights)
    assert grad_of(parameter).stride() == parameter.stride()
    assert buffer.sum() == 2 * weights.sum()


def backward_of(parameter: nn.Parameter, weights: torch.Tensor) -> None:
    """Compute a gradient that is `weights`."""
    torch.autograd.backward((parameter * weights).sum())


@pytest.mark.parametrize("num_micro_batches", [128, 1024])
def test_sums_in_fp32_lose_nothing(num_micro_batches: int) -> None:
    """Gradients in bf16 with a small mean, as of many micro-batches.

    A sum in bf16 stops growing: each addend is below half of its last digit.
    """
    generator = torch.Generator().manual_seed(3)
    shape = (num_micro_batches, 64, 64)
    parts = (torch.randn(shape, generator=generator) + 1).to(BF16)
    exact = parts.double().sum(0)
    errors = {}
    for dtype in (torch.float32, BF16):
        parameter = nn.Parameter(torch.zeros(64, 64, dtype=BF16))
        (buffer,) = attach_gradients([parameter], dtype)
        for part in parts:
            backward_of(parameter, part)
        total = gradient_of(parameter)
        assert total is not None
        assert buffer.dtype == total.dtype == dtype
        assert total.untyped_storage().data_ptr() == buffer.data_ptr()
        errors[dtype] = float((total - exact).norm() / exact.norm())
    assert errors[torch.float32] < 1e-6
    assert errors[BF16] > 0.005


def test_a_gradient_is_gone_once_it_is_added() -> None:
    """Over several backward passes; a parameter of a wider type keeps that."""
    small, wide = (
        nn.Parameter(torch.ones(2, 3, dtype=d)) for d in (BF16, torch.float32)
    )
    (buffer,) = attach_gradients([small, wide], torch.float32)
    weights = torch.arange(6.0).reshape(2, 3)
    for _ in range(2):
        backward_of(small, weights.to(BF16))
        backward_of(wide, weights)
        assert small.grad is None
    for parameter in (small, wide):
        assert torch.equal(gradient_of(parameter), 2 * weights)  # type: ignore[arg-type]
    assert buffer.sum() == 4 * weights.sum()
