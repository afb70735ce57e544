"""A step of one layer: rates, fp32 masters, and gradients that stay where they are."""

from __future__ import annotations

from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.engine.gradients import attach_gradients, gradient_of
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer, scale, squared_norm

SGD = partial(torch.optim.SGD, lr=0.5)
CPU = torch.device("cpu")


def a_parameter(
    *values: float,
    dtype: torch.dtype = torch.float32,
    sums: torch.dtype = torch.bfloat16,
) -> nn.Parameter:
    """Build a parameter with a gradient in a buffer."""
    parameter = nn.Parameter(torch.tensor(values, dtype=dtype))
    attach_gradients([parameter], sums)
    return parameter


def set_gradient(parameter: nn.Parameter, *values: float) -> None:
    """Write a gradient where it lies."""
    gradient = gradient_of(parameter)
    assert gradient is not None
    gradient.copy_(torch.tensor(values))


def test_a_factor_is_on_the_rate_that_the_optimizer_was_made_with() -> None:
    """Factors of several steps do not multiply."""
    parameter = a_parameter(1.0)
    optimizer = LayerOptimizer([parameter], SGD)
    for factor, value in ((0.1, 0.95), (0.1, 0.90), (1.0, 0.40), (0.0, 0.40)):
        set_gradient(parameter, 1.0)
        optimizer.step(factor)
        assert parameter.item() == pytest.approx(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sums", [torch.float32, torch.bfloat16])
def test_gradients_are_zero_after_a_step_and_in_their_place(
    dtype: torch.dtype, sums: torch.dtype
) -> None:
    """The next backward pass adds into the same memory."""
    parameter = a_parameter(1.0, 2.0, dtype=dtype, sums=sums)
    place = gradient_of(parameter)
    optimizer = LayerOptimizer([parameter], SGD)
    set_gradient(parameter, 1.0, 1.0)
    optimizer.step(1.0)
    assert parameter.tolist() == [0.5, 1.5]
    assert gradient_of(parameter) is place
    assert place is not None
    assert not place.any()


def test_masters_keep_what_a_small_type_would_lose() -> None:
    """Steps that are too small for bf16 one by one add up; fp32 needs no copy."""
    small, plain = a_parameter(1.0, dtype=torch.bfloat16), a_parameter(1.0)
    optimizer = LayerOptimizer([small, plain], SGD)
    assert optimizer.masters[1] is plain
    for step in range(8):
        set_gradient(small, 2**-9)
        set_gradient(plain, 2**-9)
        optimizer.step(1.0)
        assert optimizer.masters[0].grad is None
        if step == 0:
            assert small.item() == 1.0
    assert optimizer.masters[0].item() == plain.item() == 1 - 8 * 2**-10
    assert small.item() == torch.tensor(1 - 8 * 2**-10).bfloat16().item()
    assert small.dtype == torch.bfloat16


@pytest.mark.parametrize("sums", [torch.float32, torch.bfloat16])
def test_without_masters_steps_are_rounded(sums: torch.dtype) -> None:
    """The parameter is stepped on, whatever its gradients are added up in."""
    parameter = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    attach_gradients([parameter], sums)
    momentum = partial(torch.optim.SGD, lr=0.5, momentum=0.9)
    optimizer = LayerOptimizer([parameter], momentum, torch.bfloat16)
    assert optimizer.masters[0] is parameter
    gradient = gradient_of(parameter)
    assert gradient is not None
    for value, after in ((2**-9, 1.0), (1.0, 0.5)):
        gradient.fill_(value)
        optimizer.step(1.0)
        assert parameter.item() == after
        assert gradient_of(parameter) is gradient
        assert not gradient.any()
    [state] = optimizer.optimizer.state.values()
    assert state["momentum_buffer"].dtype == torch.bfloat16


def test_a_parameter_without_a_gradient_stays() -> None:
    """As a frozen one does; the others step."""
    frozen, moving = nn.Parameter(torch.ones(1, dtype=torch.bfloat16)), a_parameter(1.0)
    optimizer = LayerOptimizer([frozen, moving], SGD)
    set_gradient(moving, 1.0)
    optimizer.step(1.0)
    assert (frozen.item(), moving.item()) == (1.0, 0.5)


def test_the_norm_is_summed_in_fp32() -> None:
    """In bf16, 256 + 1 is 256: the small ones would be lost."""
    ones = torch.ones(1000, dtype=torch.bfloat16)
    large = torch.tensor([3.0, 4.0])
    found = squared_norm([ones, large], CPU)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(1025.0)
    assert squared_norm([], CPU).item() == 0.0


@pytest.mark.parametrize("factor", [0.5, torch.tensor(0.5)])
def test_scaling_is_in_place(factor: float | torch.Tensor) -> None:
    """So that parameters see it through their views."""
    parameter = a_parameter(1.0, 2.0)
    set_gradient(parameter, 4.0, 8.0)
    assert parameter.grad is not None
    scale([parameter.grad], factor)
    assert parameter.grad.tolist() == [2.0, 4.0]
