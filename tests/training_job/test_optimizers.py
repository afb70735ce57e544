"""Optimizers by name: what they are, what they keep, and who may divide that."""

from __future__ import annotations

import sys
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_planner.records.model_profile import DeviceKind, OptimizerMode
from plimsoll_trainer.checkpoint.state import check_optimizer, state_of
from plimsoll_trainer.engine.elementwise import bytes_per_number, is_elementwise
from plimsoll_trainer.engine.host_optimizer import steps_on_host
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.optimizers import BY_NAME, countable_adamw_8bit, optimizer_named
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from plimsoll_trainer.workload import MakeOptimizer, optimizer_mode

CPU = torch.device("cpu")
SHAPES = ((96, 64), (64,))
"""Of a matrix that is worth 8 bits, and of a vector."""
LIBRARIES = {"lion": "lion_pytorch", "adamw-8bit": "bitsandbytes"}


def named(name: str, **arguments: Any) -> MakeOptimizer:
    """The optimizer, if its library is here."""
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    return optimizer_named(name, **arguments)


def stepped(make: MakeOptimizer, num_steps: int = 2) -> tuple[Any, list[nn.Parameter]]:
    """An optimizer and its parameters, after a few steps."""
    parameters = [nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    optimizer = make(parameters)
    for step in range(num_steps):
        take_step(optimizer, parameters, step)
    return optimizer, parameters


def take_step(optimizer: Any, parameters: list[nn.Parameter], step: int) -> None:
    """Step on gradients that depend on the step alone."""
    for parameter in parameters:
        place = torch.arange(parameter.numel(), dtype=torch.float32)
        parameter.grad = torch.sin(place + step).view_as(parameter)
    optimizer.step()


@pytest.mark.parametrize("name", BY_NAME)
def test_a_trace_keeps_what_a_real_step_keeps(name: str) -> None:
    """Whatever number an optimizer reads; and a checkpoint holds all of it."""
    make = named(name)
    check_optimizer(make, CPU)
    optimizer, parameters = stepped(make)
    real = [forms(optimizer, parameter) for parameter in parameters]
    with FakeTensorMode():
        optimizer, parameters = stepped(make)
        assert [forms(optimizer, parameter) for parameter in parameters] == real
    assert steps_on_host(make)


def forms(optimizer: Any, parameter: Tensor) -> list[tuple[str, Any, Any]]:
    """Name, shape and type of what is kept of a parameter."""
    found = state_of(optimizer, parameter)
    return sorted((name, tuple(one.shape), str(one.dtype)) for name, one in found)


@pytest.mark.parametrize("name", BY_NAME)
def test_state_that_is_copied_goes_on_as_it_was(name: str) -> None:
    """As it is read from a checkpoint: tensors alone, into those of a made state."""
    make = named(name)
    _, expected = stepped(make, 3)
    before, after = stepped(make, 2), stepped(make, 0)
    copied = LayerOptimizer(after[1], make)
    for parameter in copied.parameters:
        parameter.grad = torch.zeros_like(parameter)
    copied.step(0.0)  # makes the state
    with torch.no_grad():
        for old, new in zip(before[1], after[1], strict=True):
            new.copy_(old)
            kept = dict(state_of(before[0], old))
            for key, value in state_of(copied.optimizer, new):
                value.copy_(kept[key])
    for group, rate in zip(
        copied.optimizer.param_groups, copied.base_rates, strict=True
    ):
        group["lr"] = rate
    take_step(copied.optimizer, after[1], 2)
    for one, other in zip(expected, after[1], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("name", "num_bytes", "pure_bytes", "is_alone"),
    [
        ("adamw", 8, 4, True),
        ("sgd", 0, 0, True),
        ("adafactor", 0, 0, False),
        ("muon", 4, 2, False),
        ("lion", 4, 2, True),
        ("adamw-8bit", 2, 2, False),
    ],
)
def test_bytes_of_a_number_and_who_may_divide_them(
    name: str, num_bytes: int, pure_bytes: int, *, is_alone: bool
) -> None:
    """On fp32, on masters of bf16, and on bf16 itself."""
    make, bf16 = named(name), torch.bfloat16
    assert bytes_per_number(make, torch.float32, CPU) == num_bytes
    assert bytes_per_number(make, bf16, CPU) == num_bytes + 4
    assert bytes_per_number(make, bf16, CPU, bf16) == pure_bytes
    assert is_elementwise(make) is is_alone


def test_arguments_reach_the_optimizer() -> None:
    """Matrices alone are decayed; modes are those that a plan knows."""
    made = optimizer_named("sgd", learning_rate=0.5, momentum=0.25, weight_decay=0.125)
    optimizer, _ = stepped(made, 0)
    matrix, vector = optimizer.param_groups
    assert (matrix["lr"], matrix["momentum"], matrix["weight_decay"]) == (
        0.5,
        0.25,
        0.125,
    )
    assert vector["weight_decay"] == 0.0
    assert optimizer_mode(optimizer, DeviceKind.CUDA) is OptimizerMode.FUSED
    optimizer, _ = stepped(optimizer_named("adafactor"), 0)
    assert optimizer_mode(optimizer, DeviceKind.CUDA) is OptimizerMode.LOOP
    assert type(optimizer).__name__ == "Adafactor"


def test_muon_steps_on_matrices_alone() -> None:
    """What AdamW steps on has two moments; both have the layer's learning rate."""
    optimizer, (matrix, vector) = stepped(optimizer_named("muon", learning_rate=0.5))
    assert [name for name, _ in state_of(optimizer, matrix)] == ["momentum_buffer"]
    assert "exp_avg_sq" in dict(state_of(optimizer, vector))
    layer = LayerOptimizer([matrix, vector], optimizer_named("muon", learning_rate=0.5))
    before = matrix.detach().clone(), vector.detach().clone()
    layer.update(0.0)
    assert torch.equal(matrix, before[0])
    assert torch.equal(vector, before[1])


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("adamv", {}, "'adamv': did you mean 'adamw'[?] there are adafactor, adamw, "),
        ("zzz", {}, "optimizer 'zzz': there are adafactor"),
        ("sgd", {"momentun": 1}, "'sgd' takes no 'momentun': did you mean 'momentum'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    name: str, arguments: dict[str, Any], message: str
) -> None:
    """Of optimizers and of their arguments."""
    with pytest.raises(WorkloadError, match=message):
        optimizer_named(name, **arguments)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_missing_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the optimizer is asked for, with what would bring it."""
    countable_adamw_8bit.cache_clear()
    monkeypatch.setitem(sys.modules, LIBRARIES[name], None)
    package = LIBRARIES[name].replace("_", "-")
    with pytest.raises(WorkloadError, match=rf"'{name}' needs {package}, .* install"):
        optimizer_named(name)
