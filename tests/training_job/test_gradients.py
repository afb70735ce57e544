"""The gradients of a layer lie in one buffer, and autograd adds into it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.gradients import ALIGNMENT, attach_gradients


def grad_of(parameter: nn.Parameter) -> torch.Tensor:
    """Return the gradient, which is there."""
    assert parameter.grad is not None
    return parameter.grad


def test_each_parameter_sees_its_part_of_one_buffer() -> None:
    """Parts begin at multiples of the alignment and do not overlap."""
    parameters = [nn.Parameter(torch.ones(shape)) for shape in ((3, 5), (), (17,))]
    (buffer,) = attach_gradients(parameters)
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
    buffers = attach_gradients(parameters)
    assert [buffer.dtype for buffer in buffers] == [torch.float32, torch.bfloat16]
    assert [grad_of(p).dtype for p in parameters] == list(kinds)


def test_what_has_a_gradient_or_needs_none_is_left_alone() -> None:
    """A shared parameter keeps the part that an earlier layer gave it."""
    shared = nn.Parameter(torch.ones(4))
    frozen = nn.Parameter(torch.ones(4), requires_grad=False)
    attach_gradients([shared])
    before = shared.grad
    own = nn.Parameter(torch.ones(2))
    (buffer,) = attach_gradients([shared, frozen, own])
    assert shared.grad is before
    assert frozen.grad is None
    assert buffer.numel() == ALIGNMENT
    assert attach_gradients([shared, frozen, own]) == []


@pytest.mark.parametrize("transposed", [False, True])
def test_autograd_adds_in_place(transposed: bool) -> None:
    """Over several backward passes, in the parameter's own order in memory."""
    values = torch.ones(3, 2).t() if transposed else torch.ones(2, 3)
    parameter = nn.Parameter(values)
    (buffer,) = attach_gradients([parameter])
    weights = torch.arange(6.0).reshape(2, 3)
    for _ in range(2):
        torch.autograd.backward((parameter * weights).sum())
    assert grad_of(parameter).data_ptr() == buffer.data_ptr()
    assert torch.equal(grad_of(parameter), 2 * weights)
    assert grad_of(parameter).stride() == parameter.stride()
    assert buffer.sum() == 2 * weights.sum()
