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

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from os import PathLike
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters import sequential
from plimsoll_trainer.adapters.causality import check_causal, takes_tokens_apart
from plimsoll_trainer.adapters.dissection import dissect
from plimsoll_trainer.adapters.model_anatomy import Anatomy, Slot
from plimsoll_trainer.adapters.model_copies import (
    build_block,
    build_embedding,
    build_head,
)
from plimsoll_trainer.adapters.model_parts import buffer_of
from plimsoll_trainer.adapters.sequence_plan import (
    split_block_sequence,
    split_embedding_sequence,
    split_head_sequence,
)
from plimsoll_trainer.adapters.tensor_names import EMBEDDING, HEAD, block_name, members
from plimsoll_trainer.adapters.tensor_plan import (
    split_block,
    split_embedding,
    split_head,
    why_whole,
)
from plimsoll_trainer.adapters.text_corpus import TextCorpus
from plimsoll_trainer.adapters.trees import leaves_of
from plimsoll_trainer.errors import WorkloadError, described
from plimsoll_trainer.workload import (
    DTYPES,
    TOKENS_AT_ONCE,
    AdamW,
    Layer,
    Loss,
    MakeBatch,
    MakeOptimizer,
    SumAndCount,
    Tie,
    TokenLoss,
    Workload,
)

BYTE_VALUES = 256
IGNORED = -100
"""A target that does not count, such as padding or a prompt."""
MOST_PIECES = 64
"""Of a sample by default: each takes time in a trace."""
LONGEST_REASON = 200
"""Letters; `transformers` may list all that it knows."""
ALIKE = 0.8
"""Ratio of difflib, from which on a field is taken for another one misspelled."""
Anatomies = Mapping[torch.dtype, Anatomy]
"""Of one model in each type it can be asked for."""


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
        anatomies_of(config, sequence_length, precision),
        batch=batch,
        optimizer=optimizer,
        precision=precision,
        tokens_at_once=tokens_at_once,
        **fields,
    )


def anatomies_of(
    config: PreTrainedConfig, sequence_length: int, precision: Precision
) -> Anatomies:
    """The model, taken apart in each type that layers of a precision are built in.

    Raises:
        WorkloadError: it is not a chain of blocks.
    """
    return {
        dtype: dissect(config, sequence_length, dtype=dtype)
        for dtype in {torch.float32, torch.bfloat16, DTYPES[precision.of_parameters]}
    }


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
    anatomy = anatomies[DTYPES[precision.of_parameters]]
    sequence_length = anatomy.sequence_length
    layers = layers_of(anatomies, anatomy)
    kinds = {layer.kind for layer in layers}
    blocks = [at for at in range(len(anatomy.blocks)) if block_name(at) in kinds]
    check_causal(anatomies[torch.float32], blocks)
    loss: Loss = next_token_loss
    if takes_tokens_apart(anatomies[torch.float32]):
        by_default = max(TOKENS_AT_ONCE, sequence_length // MOST_PIECES)
        loss = TokenLoss(next_token_loss, tokens_at_once or by_default)
    return Workload(
        layers=layers,
        loss=loss,
        batch=batch,
        optimizer=optimizer or AdamW(),
        precision=precision,
        ties=tuple(ties_of(anatomy)),
        not_split=why_whole(anatomy),
        tokens_per_sample=sequence_length,
        **fields,
    )


def parse_config(config: PreTrainedConfig | Mapping[str, Any]) -> PreTrainedConfig:
    """Configuration from a mapping, or as it is given.

    Raises:
        WorkloadError: no `model_type`, an unknown one, or a field it refuses; or
            something else than a configuration.
    """
    if isinstance(config, PreTrainedConfig):
        return config
    if not isinstance(config, Mapping):
        raise WorkloadError(f"causal_lm takes a configuration, {instead_of(config)}")
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
        reason = shorten(described(error), LONGEST_REASON)
        raise WorkloadError(f"model_type {kind!r} with {fields}: {reason}") from error
    check_spelling(kind, fields)
    return parsed


def check_spelling(kind: str, fields: Iterable[str]) -> None:
    """Refuse a field that a configuration does not know, but a similar one.

    `transformers` keeps any field, and files of configurations have some of old
    releases; so one that resembles none is left alone.

    Raises:
        WorkloadError: names both.
    """
    default = AutoConfig.for_model(kind)
    names = {*dir(default), *vars(default), *default.attribute_map}
    for field in fields:
        close = difflib.get_close_matches(field, names, n=1, cutoff=ALIKE)
        if field not in names and close:
            raise WorkloadError(
                f"model_type {kind!r} has no field {field!r}: did you mean "
                f"{close[0]!r}?"
            )


def instead_of(given: object) -> str:
    """Text about a thing that was given in place of a configuration."""
    if isinstance(given, (str, PathLike)):
        name = str(given)
        return (
            f"but is given {name!r}: pass AutoConfig.from_pretrained({name!r}); "
            "training starts from fresh weights"
        )
    if isinstance(given, nn.Module):
        return (
            f"but is given a model, {type(given).__name__}: pass its config; training "
            "starts from fresh weights, without adapters"
        )
    return (
        f"but is given {type(given).__name__}: pass one of transformers, or a mapping "
        "as in {'model_type': 'llama', 'num_hidden_layers': 16}"
    )


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


def next_token_loss(logits: Tensor, targets: Tensor) -> SumAndCount:
    """Sum of the cross entropy in fp32, and the number of tokens that it is over.

    Args:
        logits: [batch, sequence, vocabulary].
        targets: [batch, sequence], shifted already; those of `IGNORED` do not count.
    """
    flat = logits.flatten(0, 1).float()
    total = functional.cross_entropy(
        flat, targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total, (targets != IGNORED).sum()


def layers_of(anatomies: Anatomies, anatomy: Anatomy) -> tuple[Layer, ...]:
    """Chain of layers; equal blocks are of one kind, named after the first of them."""
    kinds: dict[str, str] = {}
    blocks = []
    for place, signature in enumerate(signatures(anatomy)):
        name = block_name(place)
        kind = kinds.setdefault(signature, name)
        factory = partial(build_now, anatomies, build_block, place)
        blocks.append(
            Layer(
                name=name,
                factory=factory,
                kind=kind,
                parallelize=split_block(anatomy, place),
                parallelize_sequence=split_block_sequence(anatomy, place),
            )
        )
    ends = (
        (EMBEDDING, build_embedding, split_embedding, split_embedding_sequence),
        (HEAD, build_head, split_head, split_head_sequence),
    )
    first, last = (
        Layer(
            name=name,
            factory=partial(build_now, anatomies, build),
            kind=name,
            parallelize=split(anatomy),
            parallelize_sequence=split_sequence(anatomy),
        )
        for name, build, split, split_sequence in ends
    )
    return (first, *blocks, last)


def build_now(
    anatomies: Anatomies, build: Callable[..., nn.Module], *place: int
) -> nn.Module:
    """Build a layer in torch's default type, which the workload's precision sets.

    Raises:
        WorkloadError: the model was not taken apart in that type.
    """
    dtype = torch.get_default_dtype()
    if dtype not in anatomies:
        raise WorkloadError(
            f"this model was taken apart in other types than {dtype}: give the "
            "precision to causal_lm, and do not change it afterwards"
        )
    return build(anatomies[dtype], *place)


def signatures(anatomy: Anatomy) -> list[str]:
    """Text, for each block, of all that its costs can depend on.

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
    """Numbers and words that the modules of a block remember."""
    return {
        (path, name): value
        for path, module in block.named_modules()
        for name, value in sorted(vars(module).items())
        if isinstance(value, (bool, int, float, str))
    }


def ties_of(anatomy: Anatomy) -> Iterator[Tie]:
    """Yield what several layers share: tied weights, then constants of the blocks."""
    yield from sequential.ties_of(parameters_of_layers(anatomy))
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
    for one in members(anatomy):
        named = one.module.named_parameters(remove_duplicate=False)
        for name, parameter in named:
            yield one.layer, f"{one.own}.{name}", parameter
