"""A chain beside the model that it was cut out of, with the same weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_trainer.adapters.dissection import dissect
from plimsoll_trainer.adapters.model_tasks import TASKS, Task, TaskName, build_model
from plimsoll_trainer.adapters.tensor_names import tensor_names
from plimsoll_trainer.engine.stage import StageModule, StageSlice, build_stage
from plimsoll_trainer.workload import Workload

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
    return build_model(TASKS[task], config, torch.float32).train()


def pairs(
    workload: Workload, stage: StageModule, config: PreTrainedConfig, model: nn.Module
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each tensor of the chain with the model's own; all parameters are met."""
    task = task_of(model)
    sample = tuple(workload.batch(0, 0, 1)[0].shape[1:])
    names = tensor_names(dissect(config, sample, dtype=torch.float32, task=task))
    theirs = dict(model.named_parameters(remove_duplicate=False))
    theirs |= dict(model.named_buffers(remove_duplicate=False))
    met = set()
    for number, layer in enumerate(workload.layers):
        module = stage.layers[str(number)]
        mine = dict(module.named_parameters(remove_duplicate=False))
        mine |= dict(module.named_buffers(remove_duplicate=False))
        for own, path in names.get(layer.name, {}).items():
            met.add(id(theirs[path]))
            yield mine[own], theirs[path]
    assert {id(one) for one in model.parameters()} <= met


def task_of(model: nn.Module) -> Task:
    """The task of a model, by the name of its class."""
    for ending, task in (
        ("ForMaskedLM", TaskName.FILL_MASK),
        ("ForSequenceClassification", TaskName.SEQUENCE_CLASSIFICATION),
    ):
        if type(model).__name__.endswith(ending):
            return TASKS[task]
    return TASKS[TaskName.IMAGE_CLASSIFICATION]


def apart(left: Tensor, right: Tensor) -> float:
    """Largest difference, relative to the largest value."""
    scale = right.abs().max().item() or 1.0
    return (left - right).abs().max().item() / scale


def check_same(workload: Workload, config: PreTrainedConfig, task: TaskName) -> None:
    """Assert that outputs and gradients are the model's own."""
    model, stage = the_model(config, task), whole(workload)
    with torch.no_grad():
        for mine, theirs in pairs(workload, stage, config, model):
            mine.copy_(theirs)
    inputs, targets = workload.batch(0, 0, 3)
    name = "input_ids" if TASKS[task].takes_tokens else "pixel_values"
    torch.manual_seed(7)
    logits = model(**{name: inputs})[0]
    loss = workload.loss(logits, targets)
    total = loss[0] if isinstance(loss, tuple) else loss
    total.backward()
    own = stage(inputs, targets)
    own_total = own[0] if isinstance(own, tuple) else own
    own_total.backward()
    assert apart(own_total.detach(), total.detach()) <= TOLERANCE
    largest = max(
        float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None
    )
    for mine, theirs in pairs(workload, stage, config, model):
        if theirs.grad is None:
            assert mine.grad is None or not mine.grad.any()
        elif isinstance(theirs, nn.Parameter):
            assert mine.grad is not None
            assert float((mine.grad - theirs.grad).abs().max()) <= TOLERANCE * largest
