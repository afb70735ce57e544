"""The tasks that models of `transformers` are trained for, and how each is called.

In: a model and its inputs, token ids or images. Out: what its forward pass gives. Names
are those of the pipelines of `transformers`. Called by `dissection` and by the layers
that it finds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    DynamicCache,
    PreTrainedModel,
)
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_trainer.adapters.without_values import WholeMasks
from plimsoll_trainer.errors import WorkloadError


class TaskName(StrEnum):
    """Tasks by the names of pipelines."""

    TEXT_GENERATION = "text-generation"
    FILL_MASK = "fill-mask"
    SEQUENCE_CLASSIFICATION = "sequence-classification"
    IMAGE_CLASSIFICATION = "image-classification"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One task."""

    name: TaskName
    title: str
    """Of such a model, in a message."""
    build: Callable[..., Any]
    """(configuration, dtype) -> model, which is found in the library's own list."""
    takes_tokens: bool = True
    """Token ids of shape [batch, sequence]; else images [batch, channel, row, column].
    """
    judges_tokens: bool = False
    """The output is [batch, sequence, vocabulary]; else [batch, class]."""

    @property
    def is_causal(self) -> bool:
        """Whether tokens may not see later ones."""
        return self.name is TaskName.TEXT_GENERATION


TASKS: Mapping[TaskName, Task] = {
    task.name: task
    for task in (
        Task(
            name=TaskName.TEXT_GENERATION,
            title="causal language model",
            build=AutoModelForCausalLM.from_config,
            judges_tokens=True,
        ),
        Task(
            name=TaskName.FILL_MASK,
            title="masked language model",
            build=AutoModelForMaskedLM.from_config,
            judges_tokens=True,
        ),
        Task(
            name=TaskName.SEQUENCE_CLASSIFICATION,
            title="classifier of sequences",
            build=AutoModelForSequenceClassification.from_config,
        ),
        Task(
            name=TaskName.IMAGE_CLASSIFICATION,
            title="classifier of images",
            build=AutoModelForImageClassification.from_config,
            takes_tokens=False,
        ),
    )
}
CAUSAL = TASKS[TaskName.TEXT_GENERATION]


def parse_task(task: str, known: Iterable[TaskName]) -> TaskName:
    """Task by its name.

    Raises:
        WorkloadError: it is none of those that are known.
    """
    names = [one.value for one in known]
    if task not in names:
        raise WorkloadError(f"task {task!r}: one of {', '.join(names)} is needed")
    return TaskName(task)


def build_model(
    task: Task, config: PreTrainedConfig, dtype: torch.dtype
) -> PreTrainedModel:
    """Build the model of a configuration, which is left as it is."""
    config = copy.deepcopy(config)
    # Where there are several classes for a task, the library looks here for its choice.
    config.architectures = config.architectures or []
    model: PreTrainedModel = task.build(config, dtype=dtype)
    return model


def run_model(task: Task, model: PreTrainedModel, inputs: Tensor) -> Any:
    """Run the forward pass so that masks depend on sizes alone.

    With an empty cache a causal model does not look into its positions for several
    short sequences in one sample, which fails without data, needs a mask of
    sequence^2 elements under fake tensors, and a wait on a real device.
    """
    with WholeMasks():
        if not task.is_causal:
            return run_part(task, model, inputs)
        cache = DynamicCache(config=model.config)
        return model(input_ids=inputs, use_cache=False, past_key_values=cache)


def run_part(task: Task, model: nn.Module, inputs: Tensor) -> Any:
    """Run the forward pass of a model that makes no masks."""
    if task.is_causal:
        return model(input_ids=inputs, use_cache=False)
    if task.takes_tokens:
        return model(input_ids=inputs)
    return model(pixel_values=inputs)


def blank_inputs(
    task: Task, model: PreTrainedModel, shape: tuple[int, ...], device: str
) -> Tensor:
    """Inputs of a model without meaning, [batch, ...]."""
    dtype = torch.long if task.takes_tokens else model.dtype
    return torch.zeros(shape, dtype=dtype, device=device)
