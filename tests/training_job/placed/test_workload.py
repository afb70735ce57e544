"""Workloads of one module, made from layers or not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.placed.workload import of_chain
from plimsoll_trainer.workload import Layer
from tests.support.branching import branching
from tests.support.workloads import a_gpt

CPU = torch.device("cpu")


def test_a_chain_has_the_names_and_weights_of_a_pipeline() -> None:
    """So checkpoints of either engine are those of the same tensors."""
    chain = a_gpt(depth=2)
    placed = of_chain(chain)
    state = placed.built().state_dict()
    found = {placed.name_of(name): tensor for name, tensor in state.items()}
    expected = {
        f"{layer.name}.{name}": tensor
        for index, layer in enumerate(chain.layers)
        for name, tensor in build_layer(chain, index, CPU).state_dict().items()
    }
    others = {".".join(place) for tie in chain.ties for place in tie.places[1:]}
    assert found.keys() == expected.keys() - others
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name])


@pytest.mark.parametrize("name", ["inputs", "chain", "layers", "half", "training", "b"])
def test_layers_may_be_named_as_anything_of_a_module(name: str) -> None:
    """Checkpoints have these names, and a pipeline has no others."""
    make = partial(nn.Linear, 8, 8)
    layers = tuple(
        Layer(name=one, factory=make, kind="linear") for one in (name, "a.inputs")
    )
    placed = of_chain(replace(a_gpt(), layers=layers, ties=()))
    found = {placed.name_of(one) for one, _ in placed.built().named_parameters()}
    assert {f"{name}.weight", "a.inputs.bias"} < found


def test_other_precisions_are_refused() -> None:
    """A placed graph adds gradients up in the type of their parameters."""
    with pytest.raises(WorkloadError, match="give precision fp32"):
        of_chain(a_gpt(precision="bf16-autocast"))


def broken() -> nn.Module:
    """Raise."""
    raise ValueError("no such size")


@pytest.mark.parametrize(
    ("model", "text"),
    [(broken, "ValueError: no such size"), (lambda: 3, "gives int")],
)
def test_a_model_that_cannot_be_built_is_refused(model: Any, text: str) -> None:
    """With what was raised, or what it gives instead."""
    with pytest.raises(WorkloadError, match=text):
        branching(model=model).built()
