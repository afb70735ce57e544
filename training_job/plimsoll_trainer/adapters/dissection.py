"""Finds where a model of `transformers` can be cut, by running it without data.

In: a configuration, a task and the shape of a sample. Out: an `Anatomy`. Nothing is
looked up by name. The model is built on the meta device, where tensors have shapes and
no bytes, and its own forward pass runs there while every module tells when it is called
and with what:

    ids -> [embedding][dropout] -> block 0 -> ... -> block N-1 -> [norm][projection]
           [rotary tables] -----> as arguments of the blocks

What depends on the tokens has a gradient, so an argument of a block that has none is a
constant. What grows with the batch shows in a second pass with another batch size. What
goes around a block shows in autograd's graph (`block_search`).

The blocks of a causal language model are as many as its configuration says, and only
the first of them runs, for experts cannot be chosen without data. Those of other models
are found by `block_search`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_trainer.adapters.block_search import find_blocks
from plimsoll_trainer.adapters.model_anatomy import (
    Anatomy,
    BlockCall,
    Form,
    Hidden,
    Slot,
    spine_of,
)
from plimsoll_trainer.adapters.model_copies import fails_without_masks
from plimsoll_trainer.adapters.model_tasks import (
    CAUSAL,
    Task,
    blank_inputs,
    build_model,
    run_model,
)
from plimsoll_trainer.adapters.model_watch import (
    OWN_LAYERS,
    Call,
    followed,
    logits_of,
    named,
    watch,
)
from plimsoll_trainer.adapters.trees import map_leaves, tensors_of
from plimsoll_trainer.errors import WorkloadError, described

FEWEST = 2
"""Blocks of a chain that was searched for."""
PROBES = (2, 3)
"""Two batch sizes: a dimension that differs between them grows with the batch."""


def dissect(
    config: PreTrainedConfig,
    sample: tuple[int, ...],
    *,
    dtype: torch.dtype,
    task: Task = CAUSAL,
) -> Anatomy:
    """Anatomy of a model that is built on the meta device.

    Args:
        config: of the model.
        sample: shape of the inputs of one: tokens, or channels, rows and columns.
        dtype: of parameters.
        task: that it is trained for.

    Raises:
        WorkloadError: there is no such model, or it is not built as a chain.
    """
    check_config(config, task, sample)
    model = on_meta(config, dtype, task)
    if task.is_causal:
        text = config.get_text_config(decoder=True)
        blocks = listed_blocks(model, getattr(text, "num_hidden_layers", 0))
    else:
        blocks = searched_blocks(model, task, sample)
    for path in spine_of(blocks):
        module = model.get_submodule(path)
        if own := [name for name, _ in module.named_parameters(recurse=False)]:
            raise WorkloadError(
                f"{named(config)} has the parameter {own[0]!r} beside its modules, so "
                f"it is not clear which layer it belongs to: {OWN_LAYERS}"
            )
    return anatomy_of(model, task, blocks, sample)


def anatomy_of(
    model: PreTrainedModel,
    task: Task,
    blocks: tuple[str, ...],
    sample: tuple[int, ...],
) -> Anatomy:
    """Anatomy of a model, for samples of some shape.

    Raises:
        WorkloadError: it is not built as a chain.
    """
    few, more = (watch(model, task, blocks, sample, batch) for batch in PROBES)
    slots: dict[int, int] = {}
    calls = tuple(
        block_call(model, call, other, slots)
        for call, other in zip(few.calls, more.calls, strict=True)
    )
    first = few.outputs_in(0)
    anatomy = Anatomy(
        model=model,
        task=task,
        sample=sample,
        block_paths=blocks,
        passages=tuple(
            tuple(dict.fromkeys(path for path, at in few.worked if at == number))
            for number in range(len(blocks) + 1)
        ),
        gaps=tuple(few.gaps),
        sideways=tuple(
            path
            for path, outputs in first.items()
            if (tensors := tensors_of(outputs))
            and all(id(tensor) in slots for tensor in tensors)
        ),
        without_gradient=tuple(
            path
            for path, outputs in few.outputs.items()
            if not any(tensor.requires_grad for tensor in tensors_of(outputs))
        ),
        outputs={
            path: forms_of(outputs[0], more.outputs[path][0])
            for path, outputs in few.outputs.items()
        },
        calls=calls,
    )
    return replace(anatomy, needs_masks=fails_without_masks(anatomy))


def check_config(config: PreTrainedConfig, task: Task, sample: tuple[int, ...]) -> None:
    """Refuse what no chain of blocks comes from.

    Raises:
        WorkloadError: encoder and decoder, no block, random depth, or too long a
            sequence.
    """
    if config.is_encoder_decoder:
        raise WorkloadError(
            f"{named(config)} has an encoder beside its decoder, and a chain of blocks "
            "was not found: only models of one of the two can be cut here"
        )
    text = config.get_text_config(decoder=True) if task.is_causal else config
    limit = getattr(text, "max_position_embeddings", None)
    if task.takes_tokens and isinstance(limit, int) and 0 < limit < sample[0]:
        raise WorkloadError(
            f"sequence_length {sample[0]} is beyond max_position_embeddings "
            f"{limit} of {named(config)}: raise one or lower the other"
        )
    num_blocks = getattr(text, "num_hidden_layers", None)
    if isinstance(num_blocks, int) and num_blocks < 1:
        raise WorkloadError(
            f"num_hidden_layers {num_blocks} of {named(config)} leaves it without "
            "blocks: give at least 1"
        )
    if rate := getattr(text, "layerdrop", 0.0):
        raise WorkloadError(
            f"layerdrop {rate} of {named(config)} skips whole blocks at random, which "
            "stages cannot agree on: set layerdrop to 0"
        )


def on_meta(
    config: PreTrainedConfig, dtype: torch.dtype, task: Task
) -> PreTrainedModel:
    """The model without bytes.

    Raises:
        WorkloadError: `transformers` has no such model for the task.
    """
    try:
        with torch.device("meta"):
            model = build_model(task, config, dtype)
    except Exception as error:
        raise WorkloadError(
            f"{named(config)} cannot be built as a {task.title}: {described(error)}"
        ) from error
    for module in model.modules():
        # With it, a model looks at its inputs for padding: a wait in every step.
        if isinstance(own := getattr(module, "config", None), PreTrainedConfig):
            vars(own)["pad_token_id"] = None  # some refuse it where they check
    model.train()
    return model


def listed_blocks(model: PreTrainedModel, num_blocks: int) -> tuple[str, ...]:
    """Paths of the blocks in the largest list that has as many.

    Raises:
        WorkloadError: there is no list of that many modules.
    """
    found = [
        (sum(p.numel() for p in module.parameters()), -path.count("."), path)
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == num_blocks
    ]
    if not found:
        raise WorkloadError(
            f"{named(model.config)} has no list of {num_blocks} blocks, which its "
            f"configuration announces: {OWN_LAYERS}"
        )
    path = max(found)[2]
    return tuple(f"{path}.{place}" for place in range(num_blocks))


def searched_blocks(
    model: PreTrainedModel, task: Task, sample: tuple[int, ...]
) -> tuple[str, ...]:
    """Paths of the blocks, by call, found by what depends on what.

    Raises:
        WorkloadError: it cannot run without data, or no list of it is a chain.
    """
    batch = PROBES[0]
    inputs = blank_inputs(task, model, (batch, *sample), "meta")

    def run() -> Tensor:
        return logits_of(run_model(task, model, inputs))

    with followed(model, (model,), is_causal=False):
        blocks = find_blocks(model, run, batch)
    if len(blocks) < FEWEST:
        raise WorkloadError(
            f"{named(model.config)} has no list of blocks that pass one tensor on, so "
            f"that all that comes later depends on it alone: {OWN_LAYERS}"
        )
    return blocks


def block_call(
    model: PreTrainedModel, call: Call, other: Call, slots: dict[int, int]
) -> BlockCall:
    """Call of a block, from those with the smaller and the larger batch size.

    New constants are added to `slots`, their numbers by identity.

    Raises:
        WorkloadError: a second argument depends on the activations.
    """
    given = (call.args, call.kwargs)
    larger = iter(tensors_of((other.args, other.kwargs)))

    def describe(tensor: Tensor) -> Hidden | Slot:
        twin = next(larger)
        if tensor is call.hidden:
            return Hidden()
        if tensor.requires_grad:
            raise WorkloadError(
                f"{named(model.config)} gives its blocks a second tensor that depends "
                "on the tokens, or on what is trained, of shape "
                f"{list(tensor.shape)}, but layers pass one tensor on: it is no chain "
                "of layers"
            )
        number = slots.setdefault(id(tensor), len(slots))
        return Slot(number, grows=tensor.shape[:1] != twin.shape[:1])

    described = map_leaves(given, Tensor, describe)
    args, kwargs = map_leaves(described, Cache, lambda _: None)
    form: Form = forms_of(call.output, other.output)
    return BlockCall(
        args=args,
        kwargs=kwargs,
        output=form,
        tuple_length=call.tuple_length,
    )


def forms_of(few: Any, more: Any) -> Any:
    """A tree with a `Form` in place of each tensor, from two batch sizes."""
    larger = iter(tensors_of(more))

    def form(tensor: Tensor) -> Form:
        twin = next(larger, tensor)
        if twin.ndim != tensor.ndim:
            raise WorkloadError(
                f"a tensor of shape {list(tensor.shape)} has another number of "
                "dimensions with more samples: it is no chain of layers"
            )
        sizes = tuple(zip(tensor.shape, twin.shape, strict=True))
        step = PROBES[1] - PROBES[0]
        slopes = tuple((high - low) // step for low, high in sizes)
        fixed = tuple(
            low - slope * PROBES[0]
            for (low, _), slope in zip(sizes, slopes, strict=True)
        )
        return Form(fixed, slopes, tensor.dtype)

    return map_leaves(few, Tensor, form)
