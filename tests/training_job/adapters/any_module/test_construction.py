"""Layers of a function that builds a module start as the module does."""

from __future__ import annotations

import copy
import math

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.any_module import from_module
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.torch_internals.operators import FakeTensor, FakeTensorMode
from plimsoll_trainer.workload import AdamW, Workload
from tests.support.any_models import MODELS

WIDTH = 64


class Started(nn.Module):
    """Starts its tensors in many ways, one by numbers that it asks for."""

    two: Tensor

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        rates = torch.linspace(0.1, 0.3, 3).tolist()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in rates)
        for layer, rate in zip(self.layers, rates, strict=True):
            nn.init.normal_(layer.get_parameter("weight"), std=rate)
            layer.get_parameter("bias").data = torch.full((WIDTH,), 2.0)
        self.shift = nn.Parameter(torch.arange(WIDTH) / math.pi)
        self.teacher = copy.deepcopy(self.layers[0])
        self.teacher.double().to(torch.get_default_dtype())
        self.teacher.requires_grad_(requires_grad=False)
        self.register_buffer("mask", torch.ones(WIDTH, WIDTH).tril())
        self.register_buffer("two", torch.tensor([2.0]), persistent=False)
        self.register_buffer("again", copy.deepcopy(self.two))

    def forward(self, x: Tensor) -> Tensor:
        """[b, 64] -> [b, 64]."""
        for layer in self.layers:
            x = layer(x).tanh() @ self.mask * self.two + self.shift
        made: Tensor = x + self.teacher(x) * self.again
        return made


def chain(seed: int = 0, precision: Precision = Precision.FP32) -> Workload:
    """Workload of the function."""
    x = torch.zeros(2, WIDTH)
    return from_module(
        Started,
        x,
        loss=functional.mse_loss,
        batch=lambda *_: (x, x),
        optimizer=AdamW(),
        seed=seed,
        precision=precision,
    )


def tensors_of(workload: Workload) -> dict[str, Tensor]:
    """All tensors of the layers by name."""
    device = torch.device("cpu")
    layers = [build_layer(workload, at, device) for at in range(len(workload.layers))]
    return {
        name: one
        for layer in layers
        for name, one in (*layer.named_parameters(), *layer.named_buffers())
    }


def test_layers_start_as_the_function_does() -> None:
    """Each from its own seed: constants are equal, and draws are of the same kind."""
    made, again = tensors_of(chain()), tensors_of(chain())
    module = Started()
    for name, one in (*module.named_parameters(), *module.named_buffers()):
        assert torch.equal(made[name], again[name]), name
        if "weight" in name:
            assert not torch.equal(made[name], one)
            assert made[name].std().item() == pytest.approx(one.std().item(), rel=0.1)
        else:
            assert torch.equal(made[name], one), name
    assert torch.equal(made["teacher.weight"], made["layers.0.weight"])
    assert not torch.equal(
        made["layers.0.weight"], tensors_of(chain(seed=1))["layers.0.weight"]
    )


def test_saved_names_are_those_of_the_module() -> None:
    """So is which buffers are saved."""
    workload = chain()
    device = torch.device("cpu")
    saved = {
        name
        for at in range(len(workload.layers))
        for name in build_layer(workload, at, device).state_dict()
    }
    assert saved == set(Started().state_dict())


def test_precision_is_that_of_the_weights() -> None:
    """In bf16 the function builds what it builds under that default type."""
    made = tensors_of(chain(precision=Precision.BF16))
    assert {one.dtype for one in made.values()} == {torch.bfloat16}


def test_a_trace_builds_layers_without_bytes() -> None:
    """As the profiler does."""
    workload = chain()
    with FakeTensorMode():
        layer = build_layer(workload, 0, torch.device("cpu"))
        assert all(isinstance(one, FakeTensor) for one in layer.parameters())
        made = layer(torch.zeros(3, WIDTH))
    assert isinstance(made, FakeTensor)


def test_a_model_of_transformers_starts_as_it_says() -> None:
    """By the initialisation of its own, which sets what torch's layers have not."""
    model = MODELS["gpt2"]
    x = model.inputs(2)
    workload = from_module(
        model.build,
        x,
        loss=functional.mse_loss,
        batch=lambda *_: (x[0], x[0]),
        optimizer=AdamW(),
        arguments=model.arguments,
        output=model.output,
    )
    made = tensors_of(workload)
    for name, one in model.build().named_parameters():
        assert made[name].std().item() == pytest.approx(
            one.std().item(), rel=0.3, abs=1e-6
        )
