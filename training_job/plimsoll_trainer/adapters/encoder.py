"""A workload from an encoder of `transformers`, by configuration alone.

Masked tokens are found, or whole sequences are told apart:

    encoder(BertConfig(), sequence_length=128)
    encoder({"model_type": "modernbert"}, sequence_length=1024,
            task="sequence-classification", classes=4)

Every token of a sample is text, so that attention needs no mask: padded samples are not
trained on. Blocks that are one and the same, as those of ALBERT, share their weights.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.losses import label_loss, token_loss
from plimsoll_trainer.adapters.masked_text import NUM_TOKENS, LabelledText, MaskedText
from plimsoll_trainer.adapters.model_config import parse_config
from plimsoll_trainer.adapters.model_layers import (
    dissected,
    loss_of_tokens,
    model_workload,
)
from plimsoll_trainer.adapters.model_tasks import TASKS, Task, TaskName, parse_task
from plimsoll_trainer.adapters.position_check import check_positions
from plimsoll_trainer.adapters.text_corpus import TextCorpus
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import Loss, MakeBatch, MakeOptimizer, Workload

TOKEN_TASKS = (TaskName.FILL_MASK, TaskName.SEQUENCE_CLASSIFICATION)


def encoder(
    config: PreTrainedConfig | Mapping[str, Any],
    *,
    sequence_length: int,
    task: str = TaskName.FILL_MASK.value,
    classes: int | None = None,
    batch: MakeBatch | None = None,
    optimizer: MakeOptimizer | None = None,
    precision: Precision = Precision.FP32,
    **fields: Any,
) -> Workload:
    """Build a workload that trains an encoder from fresh weights.

    Args:
        config: of the model; or a mapping with `model_type` and fields to change.
        sequence_length: tokens in a sample, none of them padding.
        task: `fill-mask` or `sequence-classification`.
        classes: labels of the latter. Default: as many as the configuration has.
        batch: token ids [count, sequence], and targets of the same shape, -100 where
            nothing is to be found, or labels [count]. Default: bytes of the Python
            library's own text.
        optimizer: default `AdamW()`.
        precision: of parameters and activations.
        fields: the other fields of `Workload`.

    Raises:
        WorkloadError: the model is not a chain of blocks, has no such task, or needs
            other data.
    """
    if sequence_length < 1:
        raise WorkloadError(
            f"sequence_length {sequence_length} is below 1: give the tokens of a sample"
        )
    asked = TASKS[parse_task(task, TOKEN_TASKS)]
    config = with_classes(parse_config(config, "encoder"), classes)
    if batch is None:
        check_tokens(config)
        corpus = TextCorpus(
            sequence_length=sequence_length, seed=int(fields.get("seed", 0))
        )
        batch = default_batch(corpus, asked, config)
    anatomies = dissected(config, asked, (sequence_length,))
    for anatomy in anatomies.values():
        check_positions(anatomy)
    loss: Loss = label_loss
    if asked.judges_tokens:
        loss = loss_of_tokens(anatomies, token_loss, None)
    return model_workload(
        anatomies,
        loss=loss,
        batch=batch,
        optimizer=optimizer,
        precision=precision,
        tokens_per_sample=sequence_length,
        **fields,
    )


def default_batch(
    corpus: TextCorpus, task: Task, config: PreTrainedConfig
) -> MakeBatch:
    """Samples of text for a task."""
    if task.judges_tokens:
        return MaskedText(corpus).batch
    return LabelledText(corpus, num_labels_of(config)).batch


def with_classes(config: PreTrainedConfig, classes: int | None) -> PreTrainedConfig:
    """The configuration with another number of labels, if one is given.

    Raises:
        WorkloadError: nothing can be told apart by as few.
    """
    if classes is None:
        return config
    if classes < FEWEST_CLASSES:
        raise WorkloadError(
            f"classes {classes} is below {FEWEST_CLASSES}: give how many labels are to "
            "be told apart"
        )
    config = copy.deepcopy(config)
    config.num_labels = classes
    return config


FEWEST_CLASSES = 2


def num_labels_of(config: PreTrainedConfig) -> int:
    """How many labels a configuration has."""
    number: int = config.num_labels or FEWEST_CLASSES
    return number


def check_tokens(config: PreTrainedConfig) -> None:
    """Refuse a model that has no token for some byte, or none for the mask.

    Raises:
        WorkloadError: the vocabulary is smaller.
    """
    size = getattr(config, "vocab_size", None)
    if isinstance(size, int) and size < NUM_TOKENS:
        raise WorkloadError(
            f"vocab_size {size} is below {NUM_TOKENS}, but the default text is bytes "
            "and a mask: raise it, or give a batch of your own"
        )
