"""A chain of layers that carry values, run one after the other in one process."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.workload import Workload


def built_layers(workload: Workload) -> list[nn.Module]:
    """All layers; what is tied is one tensor, that of its first place."""
    device = torch.device("cpu")
    layers = [build_layer(workload, at, device) for at in range(len(workload.layers))]
    for tie in workload.ties:
        (first, name), *others = tie.places
        shared = tensor_of(layers[workload.index_of(first)], name)
        for layer, own in others:
            replace(layers[workload.index_of(layer)], own, shared)
    return layers


def tensor_of(module: nn.Module, name: str) -> Tensor:
    """Parameter or buffer of a module."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}[name]


def replace(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Put another tensor in the place of one."""
    path, _, own = name.rpartition(".")
    setattr(module.get_submodule(path), own, tensor)


def run_chain(
    workload: Workload, layers: Sequence[nn.Module], inputs: Sequence[Tensor]
) -> Tensor:
    """Output of the last layer, by the contract of layers that carry values."""
    x, *others = inputs
    values = dict(zip(workload.inputs, others, strict=True))
    for layer, module in zip(workload.layers, layers, strict=True):
        made = module(x, *(values[name] for name in layer.takes or ()))
        if layer.gives:
            x, *given = made
            values.update(zip(layer.gives, given, strict=True))
        else:
            x = made
    return x
