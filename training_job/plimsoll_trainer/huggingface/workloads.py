"""Entry points for models of `transformers`, for which nobody has to write code.

    entrypoint: plimsoll_trainer.huggingface:pretrain
    args: '{"model": "Qwen3-8B", "sequence_length": 8192}'

    entrypoint: plimsoll_trainer.huggingface:finetune
    args: '{"model": "./qwen", "data": "notes.jsonl", "sequence_length": 2048,
            "lora": {"rank": 16}}'

In: arguments from YAML. Out: a `Workload`. Called by whoever loads an entry point.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from plimsoll_planner.records.bounds import Count, Index, Name
from plimsoll_planner.records.precision import Precision
from plimsoll_trainer.adapters.causal_lm import (
    anatomies_of,
    check_vocabulary,
    workload_of,
)
from plimsoll_trainer.adapters.model_layers import Anatomies
from plimsoll_trainer.adapters.text_corpus import TextCorpus
from plimsoll_trainer.epochs import Epochs
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.configurations import configuration_of, with_blocks
from plimsoll_trainer.huggingface.evaluated import evaluation_of
from plimsoll_trainer.huggingface.prepared_layers import prepared
from plimsoll_trainer.huggingface.pretrained import folder_of, pretrained
from plimsoll_trainer.huggingface.recipes import Named, recipe_of
from plimsoll_trainer.huggingface.samples import samples_of
from plimsoll_trainer.metric_loggers import metric_loggers
from plimsoll_trainer.typed import Names, NotNegative, Positive, Seed, typed
from plimsoll_trainer.workload import Workload


@typed
def pretrain(  # noqa: PLR0913 - the arguments of a manifest
    model: Name,
    *,
    sequence_length: Count,
    blocks: Count | None = None,
    lora: Mapping[str, Any] | None = None,
    frozen: Names | None = None,
    precision: str = Precision.BF16.value,
    optimizer: Named = "adamw",
    learning_rate: NotNegative = 1e-4,
    weight_decay: NotNegative = 0.1,
    schedule: Named = "constant",
    max_gradient_norm: Positive | None = 1.0,
    seed: Seed = 0,
    trust_remote_code: bool = False,
) -> Workload:
    """Train a causal language model from fresh weights.

    Args:
        model: folder or file of its configuration, a bundled name, or one of the hub.
        sequence_length: tokens in a sample.
        blocks: their number, if not that of the configuration.
        lora: low-rank adapters to train, as in `finetune`.
        frozen: patterns of names of parameters that do not train, as in `finetune`.
        precision: of parameters and activations; bf16 has masters in fp32.
        optimizer: its name, or that and more fields (`plimsoll_trainer.optimizers`).
        learning_rate: of the optimizer.
        weight_decay: of matrices.
        schedule: of the learning rate: its name, or that and more fields
            (`plimsoll_trainer.schedules`).
        max_gradient_norm: to which gradients are scaled down; null: never.
        seed: of weights, data and dropout.
        trust_remote_code: whether code that comes with the model may be run.

    Raises:
        WorkloadError: there is no such model, or it is not one that can be cut.
    """
    config = configuration_of(model, trust_remote_code=trust_remote_code)
    config = config if blocks is None else with_blocks(config, blocks)
    check_vocabulary(config)
    anatomies = anatomies_of(config, sequence_length)
    workload = workload_of(
        anatomies,
        batch=TextCorpus(sequence_length=sequence_length, seed=seed).batch,
        **recipe_of(
            precision=precision,
            optimizer=optimizer,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            schedule=schedule,
        ),
        max_gradient_norm=max_gradient_norm,
        seed=seed,
    )
    anatomy = anatomies[workload.dtype]
    return prepared(
        workload,
        anatomy,
        config=config,
        weights=None,
        adapters=adapters_of(lora, anatomy.blocks),
        frozen=frozen_by(frozen, lora),
    )


@typed
def finetune(  # noqa: PLR0913 - the arguments of a manifest
    model: Name,
    *,
    data: str | Sequence[str] | Mapping[str, Any],
    sequence_length: Count,
    tokenizer: Name | None = None,
    packing: bool = True,
    lora: Mapping[str, Any] | None = None,
    frozen: Names | None = None,
    precision: str = Precision.BF16.value,
    optimizer: Named = "adamw",
    learning_rate: NotNegative = 2e-5,
    weight_decay: NotNegative = 0.0,
    schedule: Named = "constant",
    max_gradient_norm: Positive | None = 1.0,
    evaluation: Mapping[str, Any] | None = None,
    metrics: str | Sequence[str] | Mapping[str, Any] = (),
    callbacks: Names = (),
    loading_workers: Index = 0,
    stops_at_nan: bool = True,
    seed: Seed = 0,
    trust_remote_code: bool = False,
) -> Workload:
    """Train a causal language model from its pretrained weights, on own data.

    Args:
        model: folder of a model as `transformers` saves it, or its name in the hub.
        data: files with text, a folder of them, or fields that say how to read them
            (`plimsoll_trainer.huggingface.documents`).
        sequence_length: tokens in a sample.
        tokenizer: folder of the tokenizer; default: that of the model.
        packing: whether documents follow each other in a sample; else each has its own.
        lora: low-rank adapters to train: rank, alpha, dropout, targets; default: none.
        frozen: patterns of names of parameters that do not train; with `lora` all.
        precision: of parameters and activations; bf16 has masters in fp32.
        optimizer: its name, or that and more fields (`plimsoll_trainer.optimizers`).
        learning_rate: of the optimizer.
        weight_decay: of matrices.
        schedule: of the learning rate, likewise (`plimsoll_trainer.schedules`).
        max_gradient_norm: to which gradients are scaled down; null: never.
        evaluation: data of its own, and when (`evaluated`); none by default.
        metrics: loggers by name: tensorboard, wandb, mlflow; or their options by name.
        callbacks: functions that each make one, as in `my_module:function`.
        loading_workers: processes that make samples ahead; 0: none.
        stops_at_nan: whether a loss that is not finite ends the job.
        seed: of adapters, of the order of the data, and of dropout.
        trust_remote_code: whether code that comes with model or tokenizer may be run.

    Raises:
        WorkloadError: something is missing, or does not go with the others.
    """
    source = pretrained_model(
        model, sequence_length, trust_remote_code=trust_remote_code
    )
    samples = partial(
        samples_of,
        tokenizer=Path(tokenizer) if tokenizer else source.folder,
        vocabulary=vocabulary_of(source.config),
        sequence_length=sequence_length,
        is_packed=packing,
        trust_remote_code=trust_remote_code,
    )
    workload = workload_of(
        source.anatomies,
        batch=Epochs(samples=samples(data), seed=seed),
        evaluation=evaluation_of(evaluation, samples),
        callbacks=(*metric_loggers(metrics), *callbacks),
        loading_workers=loading_workers,
        stops_at_nan=stops_at_nan,
        **recipe_of(
            precision=precision,
            optimizer=optimizer,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            schedule=schedule,
        ),
        max_gradient_norm=max_gradient_norm,
        seed=seed,
    )
    return source.prepared(workload, lora, frozen)


@dataclass(frozen=True, eq=False, slots=True)
class PretrainedModel:
    """A model in a folder, taken apart."""

    folder: Path
    config: PreTrainedConfig
    anatomies: Anatomies

    def prepared(
        self,
        workload: Workload,
        lora: Mapping[str, Any] | None,
        frozen: Sequence[str] | None,
    ) -> Workload:
        """The workload of fresh weights, with those of the folder in their place.

        Raises:
            WorkloadError: they are of another model, or nothing is left to train.
        """
        anatomy = self.anatomies[workload.dtype]
        return prepared(
            workload,
            anatomy,
            config=self.config,
            weights=pretrained(anatomy.model, self.folder),
            adapters=adapters_of(lora, anatomy.blocks),
            frozen=frozen_by(frozen, lora),
        )


def pretrained_model(
    model: str, sequence_length: int, *, trust_remote_code: bool = False
) -> PretrainedModel:
    """Take apart a model that has weights.

    Raises:
        WorkloadError: there is none, or it cannot be cut.
    """
    folder = folder_of(model)
    config = configuration_of(str(folder), trust_remote_code=trust_remote_code)
    return PretrainedModel(folder, config, anatomies_of(config, sequence_length))


def frozen_by(frozen: Sequence[str] | None, lora: object) -> Sequence[str]:
    """Patterns of what does not train; by default all, if there are adapters."""
    if frozen is not None:
        return frozen
    return ("*",) if lora is not None else ()


def adapters_of(lora: Mapping[str, Any] | None, blocks: Sequence[Any]) -> Any:
    """Adapters that are asked for.

    Raises:
        WorkloadError: `peft` is not installed, or has no such adapters.
    """
    if lora is None:
        return None
    # It misses kernels of a library that nobody has asked for, if that is installed.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        # Imported here, for nothing else needs it.
        from plimsoll_trainer.huggingface.low_rank import low_rank  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "peft":
            raise
        raise WorkloadError(
            "peft is not installed, which makes the adapters of lora: install it, or "
            "leave lora out"
        ) from None
    return low_rank(lora, blocks)


def vocabulary_of(config: PreTrainedConfig) -> int:
    """Tokens that a model knows."""
    size: int = config.get_text_config(decoder=True).vocab_size
    return size
