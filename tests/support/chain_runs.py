"""A chain of layers that carry values, run one after the other in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.layer_runs import loss_alone
from plimsoll_trainer.random_keys import random_key, seed_device
from plimsoll_trainer.workload import Workload

CPU = torch.device("cpu")


def built_layers(workload: Workload) -> list[nn.Module]:
    """All layers; what is tied is one tensor, that of its first place."""
    layers = [build_layer(workload, at, CPU) for at in range(len(workload.layers))]
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
    workload: Workload,
    layers: Sequence[nn.Module],
    inputs: Sequence[Tensor],
    before: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """Output of the last layer, by the contract of layers that carry values.

    `before` is called with the place of each layer before that runs.
    """
    x, *others = inputs
    values = dict(zip(workload.inputs, others, strict=True))
    for place, (layer, module) in enumerate(zip(workload.layers, layers, strict=True)):
        before(place)
        made = module(x, *(values[name] for name in layer.takes or ()))
        if layer.gives:
            x, *given = made
            values.update(zip(layer.gives, given, strict=True))
        else:
            x = made
    return x


def train_alone(
    workload: Workload, num_steps: int, num_micro_batches: int, micro_batch: int
) -> list[float]:
    """Losses of a plain loop that knows no stages."""
    count = len(workload.layers)
    layers = nn.ModuleList(build_layer(workload, i, CPU) for i in range(count))
    optimizer = workload.optimizer(list(layers.parameters()))
    losses = []
    for step in range(num_steps):
        total = torch.zeros(())
        for place in range(num_micro_batches):
            first = place * micro_batch
            total = total + loss_of(workload, layers, step, first, micro_batch)
        loss = total / num_micro_batches
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def loss_of(
    workload: Workload, layers: nn.ModuleList, step: int, first: int, count: int
) -> Tensor:
    """Loss of one micro-batch."""
    x, targets = workload.batch(step, first, count)

    def seed(place: int) -> None:
        seed_device(CPU, random_key(workload.seed, step, first, place))

    inputs = x if isinstance(x, tuple) else (x,)
    output = run_chain(workload, list(layers), inputs, seed)
    loss, _ = loss_alone(workload.loss, output, targets)
    return loss
