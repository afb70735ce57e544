"""A workload from a causal language model of `transformers`, by configuration alone.

The model is cut where its own forward pass can be cut, whatever its modules are called
(`model_anatomy`): "embedding" is all that comes before the first block, "block.0" to
"block.N-1" follow, and "head" is all that comes after the last one. Every layer is
built alone, with the model's own initialisation (`model_parts`).

    causal_lm(GPT2Config(n_layer=4), sequence_length=256)
    causal_lm({"model_type": "llama", "num_hidden_layers": 16}, sequence_length=4096)

The loss is the cross entropy of the next token. What a model adds to it, such as the
balance of experts, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.dissection import dissect
from plimsoll_trainer.adapters.model_anatomy import Anatomy, Slot
from plimsoll_trainer.adapters.model_copies import (
    build_block,
    build_embedding,
    build_head,
)
from plimsoll_trainer.adapters.model_parts import buffer_of
from plimsoll_trainer.adapters.text_corpus import TextCorpus
from plimsoll_trainer.adapters.trees import leaves_of
from plimsoll_trainer.errors import WorkloadError, described
from plimsoll_trainer.workload import (
    DTYPES,
    AdamW,
    Layer,
    MakeBatch,
    MakeOptimizer,
    Tie,
    Workload,
)

EMBEDDING = "embedding"
HEAD = "head"
BYTE_VALUES = 256
LONGEST_REASON = 200
"""Letters; `transformers` may list all that it knows."""
Anatomies = Mapping[torch.dtype, Anatomy]
"""Of one model in each type it can be asked for."""


def causal_lm(
    config: PreTrainedConfig | Mapping[str, Any],
    *,
    sequence_length: int,
    batch: MakeBatch | None = None,
    optimizer: MakeOptimizer | None = None,
    precision: Precision = Precision.FP32,
    **fields: Any,
) -> Workload:
    """Build a workload that trains a model from fresh weights.

    Args:
        config: of the model; or a mapping with `model_type` and fields to change.
        sequence_length: tokens in a sample.
        batch: token ids and targets, both [count, sequence]; the targets are shifted
            already. Default: bytes of the Python library's own text.
        optimizer: default `AdamW()`.
        precision: of parameters and activations.
        fields: the other fields of `Workload`.

    Raises:
        WorkloadError: the model is not a chain of blocks, or needs other data.
    """
    config = parse_config(config)
    if batch is None:
        check_vocabulary(config)
        seed = int(fields.get("seed", 0))
        batch = TextCorpus(sequence_length=sequence_length, seed=seed).batch
    anatomies = {
        dtype: dissect(config, sequence_length, dtype=dtype)
        for dtype in DTYPES.values()
    }
    anatomy = anatomies[DTYPES[precision]]
    return Workload(
        layers=layers_of(anatomies, anatomy),
        loss=next_token_loss,
        batch=batch,
        optimizer=optimizer or AdamW(),
        precision=precision,
        ties=tuple(ties_of(anatomy)),
        tokens_per_sample=sequence_length,
        **fields,
    )


def parse_config(config: PreTrainedConfig | Mapping[str, Any]) -> PreTrainedConfig:
    """Turn a mapping into a configuration.

    Raises:
        WorkloadError: no `model_type`, an unknown one, or a field it refuses.
    """
    if isinstance(config, PreTrainedConfig):
        return config
    fields = dict(config)
    kind = fields.pop("model_type", None)
    if not isinstance(kind, str):
        raise WorkloadError(
            "the configuration names no model_type: give one that transformers knows, "
            "as in {'model_type': 'llama', 'num_hidden_layers': 16}"
        )
    try:
        parsed: PreTrainedConfig = AutoConfig.for_model(kind, **fields)
    except Exception as error:
        said = shorten(described(error), LONGEST_REASON)
        raise WorkloadError(f"model_type {kind!r} with {fields}: {said}") from error
    return parsed


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


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy, in fp32.

    Args:
        logits: [batch, sequence, vocabulary].
        targets: [batch, sequence], shifted already.
    """
    flat = logits.flatten(0, 1).float()
    return functional.cross_entropy(flat, targets.flatten())


def layers_of(anatomies: Anatomies, anatomy: Anatomy) -> tuple[Layer, ...]:
    """Return the chain; equal blocks are of one kind, named after the first of them."""
    kinds: dict[str, str] = {}
    blocks = []
    for place, signature in enumerate(signatures(anatomy)):
        name = block_name(place)
        kind = kinds.setdefault(signature, name)
        factory = partial(build_now, anatomies, build_block, place)
        blocks.append(Layer(name=name, factory=factory, kind=kind))
    ends = ((EMBEDDING, build_embedding), (HEAD, build_head))
    first, last = (
        Layer(name=name, factory=partial(build_now, anatomies, build), kind=name)
        for name, build in ends
    )
    return (first, *blocks, last)


def build_now(
    anatomies: Anatomies, build: Callable[..., nn.Module], *place: int
) -> nn.Module:
    """Build a layer in torch's default type, which the workload's precision sets."""
    return build(anatomies[torch.get_default_dtype()], *place)


def block_name(place: int) -> str:
    """Name a block in the chain."""
    return f"block.{place}"


def signatures(anatomy: Anatomy) -> list[str]:
    """Describe, for each block, all that its costs can depend on.

    That is what it is made of and called with. A number that is each block's own place
    tells nothing, as in `layer_idx=3` inside of block 3.
    """
    facts = [plain_facts(block) for block in anatomy.blocks]
    counting = {
        key
        for key in {key for each in facts for key in each}
        if all(
            type(found := each.get(key, place)) is int and found == place
            for place, each in enumerate(facts)
        )
    }
    return [
        f"{block!r} {call} {[fact for fact in each.items() if fact[0] not in counting]}"
        for block, call, each in zip(anatomy.blocks, anatomy.calls, facts, strict=True)
    ]


def plain_facts(block: nn.Module) -> dict[tuple[str, str], object]:
    """Return numbers and words that the modules of a block remember."""
    return {
        (path, name): value
        for path, module in block.named_modules()
        for name, value in sorted(vars(module).items())
        if isinstance(value, (bool, int, float, str))
    }


def ties_of(anatomy: Anatomy) -> Iterator[Tie]:
    """Yield what several layers share: tied weights, then constants of the blocks."""
    weights: dict[int, list[tuple[str, str]]] = {}
    for layer, name, parameter in parameters_of_layers(anatomy):
        weights.setdefault(id(parameter), []).append((layer, name))
    for places in weights.values():
        if len({layer for layer, _ in places}) > 1:
            yield Tie(places=tuple(places))
    constants: dict[str, list[tuple[str, str]]] = {}
    for place, call in enumerate(anatomy.calls):
        for name in {
            buffer_of(slot) for slot in leaves_of((call.args, call.kwargs), Slot)
        }:
            constants.setdefault(name, []).append((block_name(place), name))
    for name in sorted(constants):
        if len(constants[name]) > 1:
            yield Tie(places=tuple(constants[name]), constant=True)


def parameters_of_layers(anatomy: Anatomy) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Yield (layer, name inside the layer, parameter), shared ones at every place."""
    organs = anatomy.organs
    for path in anatomy.before:
        for name, parameter in organs[path].named_parameters(remove_duplicate=False):
            yield EMBEDDING, f"model.{path}.{name}", parameter
    for place, block in enumerate(anatomy.blocks):
        for name, parameter in block.named_parameters(remove_duplicate=False):
            yield block_name(place), f"block.{name}", parameter
    for path in anatomy.after:
        for name, parameter in organs[path].named_parameters(remove_duplicate=False):
            yield HEAD, f"model.{path}.{name}", parameter
