"""The task that a configuration is of, and the kinds of models for each task.

    architectures: ["BertForMaskedLM"]    what the model was saved as
    model_type: "vit"                     else what the kind of model is made for

In: a configuration, or nothing. Out: a `TaskName`, or names of kinds. The lists are
those of `transformers`. Called by the profiler's readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import CONFIG_MAPPING
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto import modeling_auto

from plimsoll_trainer.adapters.model_tasks import TaskName
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.remote_code import AUTO_MAP

CLASSES: Mapping[TaskName, Mapping[Any, object]] = {
    TaskName.TEXT_GENERATION: modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    TaskName.FILL_MASK: modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    TaskName.IMAGE_CLASSIFICATION: (
        modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    ),
    TaskName.SEQUENCE_CLASSIFICATION: (
        modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    ),
}
"""Of each task, names of classes by kind; the first task that a kind has is its own."""
AUTO_CLASSES: Mapping[TaskName, str] = {
    TaskName.TEXT_GENERATION: "AutoModelForCausalLM",
    TaskName.FILL_MASK: "AutoModelForMaskedLM",
    TaskName.IMAGE_CLASSIFICATION: "AutoModelForImageClassification",
    TaskName.SEQUENCE_CLASSIFICATION: "AutoModelForSequenceClassification",
}
"""Of each task, by which a model with its own code names its class."""


def task_of(config: PreTrainedConfig) -> TaskName:
    """The task that a configuration is of.

    Raises:
        WorkloadError: of none that is known here.
    """
    for name in config.architectures or ():
        for task, classes in CLASSES.items():
            if name in names_in(classes.get(config.model_type)):
                return task
    kind = config.model_type
    # Such an encoder is in the list of causal models as well.
    if getattr(config, "is_decoder", None) is False and kind in encoders():
        return TaskName.FILL_MASK
    for task, classes in CLASSES.items():
        if kind in classes:
            return task
    own_classes = getattr(config, AUTO_MAP, None) or {}
    for task, name in AUTO_CLASSES.items():
        if name in own_classes:
            return task
    raise WorkloadError(
        f"a {kind!r} model has none of the tasks {', '.join(CLASSES)}: write the "
        "layers yourself (plimsoll_trainer.adapters.sequential.from_factories)"
    )


def names_in(classes: object) -> tuple[str, ...]:
    """Names of the classes of one kind, of which there may be several."""
    if isinstance(classes, str):
        return (classes,)
    return tuple(map(str, classes)) if isinstance(classes, tuple) else ()


def encoders() -> set[str]:
    """Kinds that find masked tokens."""
    return set(CLASSES[TaskName.FILL_MASK])


def kinds_of(task: TaskName) -> list[str]:
    """Kinds of models that a task is surveyed for, in order.

    Causal models that tell sequences apart do so by their last token that is no
    padding, which needs padding: they are left out.
    """
    kinds = set(CLASSES[task]) & set(CONFIG_MAPPING)
    if task is TaskName.SEQUENCE_CLASSIFICATION:
        kinds -= set(CLASSES[TaskName.TEXT_GENERATION]) - encoders()
    return sorted(kinds)
