"""States of a rank, with the weights that one process begins with."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.placed.capture import capture
from plimsoll_trainer.placed.states import owned_states
from plimsoll_trainer.placed.workload import of_chain
from plimsoll_trainer.torch_internals.operators import FakeTensor
from plimsoll_trainer.workload import Layer
from tests.support.workloads import a_gpt


def noted(layer: Layer, built: list[str]) -> nn.Module:
    """Build a layer, and note it if that takes memory."""
    module = layer.factory()
    if not any(isinstance(one.data, FakeTensor) for one in module.parameters()):
        built.append(layer.name)
    return module


def test_a_rank_builds_what_it_holds_a_tensor_of() -> None:
    """Their values are those of the whole model, that of a tie's first place too."""
    built: list[str] = []
    chain = a_gpt(depth=2)
    layers = tuple(
        replace(one, factory=partial(noted, one, built)) for one in chain.layers
    )
    workload = of_chain(replace(chain, layers=layers))
    graph = capture(workload, 2)
    assert built == []
    nodes = {one.name: one.node for one in graph.states}
    here = {"embedding.token.weight", "block.1.mlp.0.bias"}
    states = owned_states(
        workload,
        graph,
        {nodes[name] for name in here}.__contains__,
        torch.device("cpu"),
    )
    assert built == ["embedding", "block.1"]
    assert {one.name for one in states} == here
    whole = {
        workload.name_of(name): tensor
        for name, tensor in workload.built().named_parameters()
    }
    for state in states:
        assert torch.equal(state.tensor, whole[state.name])
        assert state.is_saved
