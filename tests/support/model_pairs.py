"""A chain beside the model that it was cut out of, with the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_trainer.adapters.dissection import dissect
from plimsoll_trainer.adapters.model_anatomy import Anatomy
from plimsoll_trainer.adapters.model_tasks import TASKS, TaskName, build_model, run_part
from plimsoll_trainer.adapters.tensor_names import tensor_names
from plimsoll_trainer.engine.stage import StageModule, StageSlice, build_stage
from plimsoll_trainer.workload import Layer, SumAndCount, Workload

CPU = torch.device("cpu")
TOLERANCE = 2e-5
"""Of fp32, relative to the largest value; sums may be taken in another order."""


def whole(workload: Workload) -> StageModule:
    """All layers in one process."""
    end = len(workload.layers)
    return build_stage(
        workload, StageSlice(first_layer=0, end_layer=end, recomputed=frozenset()), CPU
    )


def the_model(config: PreTrainedConfig, task: TaskName) -> nn.Module:
    """The model as transformers builds it."""
    torch.manual_seed(5)
    model: nn.Module = build_model(TASKS[task], config, torch.float32)
    return model.train()


def pairs(
    stage: StageModule, layers: Sequence[Layer], anatomy: Anatomy, model: nn.Module
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each tensor of the chain with the model's own."""
    names, theirs = tensor_names(anatomy), tensors_of(model)
    for number, layer in enumerate(layers):
        mine = tensors_of(stage.layers[str(number)])
        for own, path in names.get(layer.name, {}).items():
            yield mine[own], theirs[path]


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by all of their names."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def total_of(loss: Tensor | SumAndCount) -> Tensor:
    """The mean, or the sum."""
    return loss[0] if isinstance(loss, tuple) else loss


def apart(left: Tensor, right: Tensor) -> float:
    """Largest difference, relative to the largest value."""
    scale = right.abs().max().item() or 1.0
    return (left - right).abs().max().item() / scale


def check_same(workload: Workload, config: PreTrainedConfig, name: TaskName) -> None:
    """Assert that loss and gradients are the model's own."""
    task, sample = TASKS[name], tuple(workload.batch(0, 0, 1)[0].shape[1:])
    model, stage = the_model(config, name), whole(workload)
    anatomy = dissect(config, sample, dtype=torch.float32, task=task)
    both = list(pairs(stage, workload.layers, anatomy, model))
    with torch.no_grad():
        for mine, theirs in both:
            mine.copy_(theirs)
    inputs, targets = workload.batch(0, 0, 3)
    their_loss = total_of(workload.loss(run_part(task, model, inputs)[0], targets))
    own_loss = total_of(stage(inputs, targets=targets))
    torch.autograd.backward([their_loss, own_loss])
    assert apart(own_loss.detach(), their_loss.detach()) <= TOLERANCE
    trained = [p for p in model.parameters() if p.grad is not None]
    assert {id(p) for p in trained} <= {id(theirs) for _, theirs in both}
    largest = max(float(p.grad.abs().max()) for p in trained if p.grad is not None)
    for mine, theirs in both:
        if theirs.grad is None:
            assert mine.grad is None or not mine.grad.any()
        elif isinstance(theirs, nn.Parameter):
            assert mine.grad is not None
            assert float((mine.grad - theirs.grad).abs().max()) <= TOLERANCE * largest
