"""A workload from a causal language model of `transformers`, by configuration alone.

The model is cut where its own forward pass can be cut, whatever its modules are called
(`model_anatomy`): "embedding" is all that comes before the first block, "block.0" to
"block.N-1" follow, and "head" is all that comes after the last one. Every layer is
built alone, with the model's own initialisation (`model_parts`).

    causal_lm(GPT2Config(n_layer=4), sequence_length=256)
    causal_lm({"model_type": "llama", "num_hidden_layers": 16}, sequence_length=4096)

The loss is the cross entropy of the next token, over all targets that are not -100 as
`transformers` has it. What a model adds to it, such as the balance of experts, is left
out. Where the head recomputes, head and loss take a few tokens at a time, so that the
logits of all tokens are never there; a model whose head mixes tokens is found by trying
(`causality`), and its head is run whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.causality import check_causal
from plimsoll_trainer.adapters.losses import IGNORED, token_loss
from plimsoll_trainer.adapters.model_config import parse_config
from plimsoll_trainer.adapters.model_layers import (
    Anatomies,
    dissected,
    loss_of_tokens,
    model_workload,
)
from plimsoll_trainer.adapters.model_tasks import CAUSAL
from plimsoll_trainer.adapters.tensor_names import block_name
from plimsoll_trainer.adapters.text_corpus import TextCorpus
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import MakeBatch, MakeOptimizer, Workload

BYTE_VALUES = 256
next_token_loss = token_loss
"""Of logits and targets, which are shifted already."""
__all__ = ["IGNORED", "causal_lm", "next_token_loss", "parse_config"]


def causal_lm(
    config: PreTrainedConfig | Mapping[str, Any],
    *,
    sequence_length: int,
    batch: MakeBatch | None = None,
    optimizer: MakeOptimizer | None = None,
    precision: Precision = Precision.FP32,
    tokens_at_once: int | None = None,
    **fields: Any,
) -> Workload:
    """Build a workload that trains a model from fresh weights.

    Args:
        config: of the model; or a mapping with `model_type` and fields to change.
        sequence_length: tokens in a sample.
        batch: token ids and targets, both [count, sequence]; the targets are shifted
            already, and -100 where a token does not count. Default: bytes of the Python
            library's own text.
        optimizer: default `AdamW()`.
        precision: of parameters and activations.
        tokens_at_once: that head and loss take where the head recomputes, at most.
            Default: 512, or a 64th of a longer sample.
        fields: the other fields of `Workload`.

    Raises:
        WorkloadError: the model is not a chain of blocks, or not causal, or needs
            other data.
    """
    if sequence_length < 1:
        raise WorkloadError(
            f"sequence_length {sequence_length} is below 1: give the tokens of a sample"
        )
    config = parse_config(config)
    if batch is None:
        check_vocabulary(config)
        seed = int(fields.get("seed", 0))
        batch = TextCorpus(sequence_length=sequence_length, seed=seed).batch
    return workload_of(
        anatomies_of(config, sequence_length),
        batch=batch,
        optimizer=optimizer,
        precision=precision,
        tokens_at_once=tokens_at_once,
        **fields,
    )


def anatomies_of(config: PreTrainedConfig, sequence_length: int) -> Anatomies:
    """The model, taken apart in each type that it is asked for.

    Raises:
        WorkloadError: it is not a chain of blocks.
    """
    return dissected(config, CAUSAL, (sequence_length,))


def workload_of(
    anatomies: Anatomies,
    *,
    batch: MakeBatch,
    optimizer: MakeOptimizer | None = None,
    precision: Precision = Precision.FP32,
    tokens_at_once: int | None = None,
    **fields: Any,
) -> Workload:
    """Workload of a model that was taken apart, from fresh weights; see `causal_lm`.

    Raises:
        WorkloadError: it is not causal.
    """
    workload = model_workload(
        anatomies,
        loss=loss_of_tokens(anatomies, next_token_loss, tokens_at_once),
        batch=batch,
        optimizer=optimizer,
        precision=precision,
        tokens_per_sample=anatomies[torch.float32].sample[0],
        **fields,
    )
    kinds = {layer.kind for layer in workload.layers}
    blocks = range(len(anatomies[torch.float32].calls))
    check_causal(
        anatomies[torch.float32], [at for at in blocks if block_name(at) in kinds]
    )
    return workload


def check_vocabulary(config: PreTrainedConfig) -> None:
    """Refuse a model that has no token for some byte.

    Raises:
        WorkloadError: the vocabulary is smaller than a byte.
    """
    size = getattr(config.get_text_config(decoder=True), "vocab_size", None)
    if isinstance(size, int) and size < BYTE_VALUES:
        raise WorkloadError(
            f"vocab_size {size} is below {BYTE_VALUES}, but the default text is bytes: "
            "raise it, or give a batch of your own"
        )
