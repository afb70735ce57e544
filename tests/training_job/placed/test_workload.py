"""Workloads of one module, made from layers or not."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.placed.workload import of_chain
from tests.support.branching import branching
from tests.support.workloads import a_gpt


def test_a_chain_has_the_names_and_weights_of_a_pipeline() -> None:
    """So checkpoints of either engine are those of the same tensors."""
    chain = a_gpt(depth=2)
    model = of_chain(chain).built()
    for index, layer in enumerate(chain.layers):
        expected = build_layer(chain, index, torch.device("cpu")).state_dict()
        found = model.get_submodule(layer.name).state_dict()
        tied = {tensor for tie in chain.ties for name, tensor in tie.places[1:]}
        assert expected.keys() == found.keys()
        for name in expected.keys() - tied:
            assert torch.equal(found[name], expected[name])


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
