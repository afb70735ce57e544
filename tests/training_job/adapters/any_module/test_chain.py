"""Chains of any module compute what the module does."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("torchvision")

import torch
from torch import Tensor, nn

from plimsoll_trainer.adapters.any_module import from_module
from plimsoll_trainer.workload import AdamW, Workload
from tests.support.any_models import MODELS, Model
from tests.support.chain_runs import built_layers, run_chain


def no_batch(step: int, first: int, count: int) -> Any:
    """Stand for a batch that is not asked for."""
    raise NotImplementedError((step, first, count))


def squares(output: Tensor, targets: Tensor) -> Tensor:
    """A loss without targets."""
    del targets
    return output.square().mean()


def chain_of(model: Model, module: Any, **fields: Any) -> Workload:
    """Workload of a model."""
    return from_module(
        module,
        model.inputs(4),
        loss=squares,
        batch=no_batch,
        optimizer=AdamW(),
        arguments=model.arguments,
        output=model.output,
        **fields,
    )


def gradients_of(modules: list[nn.Module]) -> dict[str, Tensor | None]:
    """Gradients by the name of the parameter in the module."""
    return {
        name: parameter.grad
        for module in modules
        for name, parameter in module.named_parameters()
    }


@pytest.mark.parametrize("name", MODELS)
def test_a_chain_is_the_module_to_the_bit(name: str) -> None:
    """Loss, gradients and buffers, for two numbers of samples beside the example's."""
    model = MODELS[name]
    torch.manual_seed(0)
    module = model.build().train()
    workload = chain_of(model, module)
    layers = built_layers(workload)
    assert len(layers) > 2
    for samples in (model.fewest, 5):
        inputs = model.inputs(samples, seed=samples)
        module.zero_grad()
        for layer in layers:
            layer.zero_grad()
        expected = squares(model.run(module, inputs), inputs[0])
        expected.backward()  # type: ignore[no-untyped-call]
        found = squares(run_chain(workload, layers, inputs), inputs[0])
        found.backward()  # type: ignore[no-untyped-call]
        assert torch.equal(found, expected)
        gradients = gradients_of(layers)
        for key, gradient in gradients_of([module]).items():
            other = gradients.get(key)
            if gradient is None or other is None:
                assert other is gradient, key
            else:
                assert torch.equal(other, gradient), key
    buffers = {key: one for layer in layers for key, one in layer.named_buffers()}
    for key, buffer in module.named_buffers():
        assert key not in buffers or torch.equal(buffers[key], buffer), key


CARRYING = {"t5", "bart", "clip", "whisper", "unet", "two_towers", "two_inputs"}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_given_is_taken_later(name: str) -> None:
    """By the contract: given once, by an input or a layer, and taken behind it."""
    workload = chain_of(MODELS[name], MODELS[name].build)
    given, taken = list(workload.inputs), set[str]()
    for layer in workload.layers:
        assert set(layer.takes or ()) <= set(given)
        taken |= set(layer.takes or ())
        given += layer.gives
    assert len(given) == len(set(given))
    assert set(given) == taken
    if name in CARRYING:
        assert given
