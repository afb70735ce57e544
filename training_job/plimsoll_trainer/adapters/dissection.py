"""Finds where a causal language model can be cut, by running it without data.

In: a configuration of `transformers` and a sequence length. Out: an `Anatomy`. Nothing
is looked up by name. The model is built on the meta device, where tensors have shapes
and no bytes, and its own forward pass runs there while every module tells when it is
called and with what:

    ids -> [embedding][dropout] -> block 0 -> ... -> block N-1 -> [norm][projection]
           [rotary tables] -----> as arguments of the blocks

What depends on the tokens has a gradient, so an argument of a block that has none is a
constant. What grows with the batch shows in a second pass with another batch size.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Cache, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_trainer.adapters.model_anatomy import (
    Anatomy,
    BlockCall,
    Form,
    Hidden,
    Slot,
    blocks_at,
    organs_of,
    run_model,
    wrapped,
)
from plimsoll_trainer.adapters.trees import map_leaves, tensors_of
from plimsoll_trainer.errors import WorkloadError, described

PROBES = (2, 3)
"""Two batch sizes: a dimension that differs between them grows with the batch."""


def dissect(
    config: PreTrainedConfig, sequence_length: int, *, dtype: torch.dtype
) -> Anatomy:
    """Anatomy of a model that is built on the meta device.

    Raises:
        WorkloadError: it is no decoder-only model, or is not built as a chain.
    """
    check_config(config, sequence_length)
    model = on_meta(config, dtype)
    text = config.get_text_config(decoder=True)
    spine = spine_of(model, getattr(text, "num_hidden_layers", 0))
    for path in spine[:-1]:
        module = model.get_submodule(path)
        if own := [name for name, _ in module.named_parameters(recurse=False)]:
            raise WorkloadError(
                f"{named(config)} has the parameter {own[0]!r} beside its modules, so "
                "it is not clear which layer it belongs to: write the layers yourself "
                "(plimsoll_trainer.adapters.sequential.from_factories)"
            )
    return anatomy_of(model, spine, sequence_length)


def anatomy_of(
    model: PreTrainedModel, spine: tuple[str, ...], sequence_length: int
) -> Anatomy:
    """Anatomy of a model, for samples of some length.

    Raises:
        WorkloadError: it is not built as a chain.
    """
    few, more = (watch(model, spine, sequence_length, batch) for batch in PROBES)
    slots: dict[int, int] = {}
    calls = tuple(
        block_call(model, call, other, slots)
        for call, other in zip(few.calls, more.calls, strict=True)
    )
    return Anatomy(
        model=model,
        sequence_length=sequence_length,
        spine=spine,
        before=tuple(few.outputs),
        after=tuple(dict.fromkeys(few.after)),
        sideways=tuple(
            path
            for path, outputs in few.outputs.items()
            if (tensors := tensors_of(outputs))
            and all(id(tensor) in slots for tensor in tensors)
        ),
        outputs={
            path: forms_of(outputs[0], more.outputs[path][0])
            for path, outputs in few.outputs.items()
        },
        calls=calls,
        tuple_length=few.tuple_length,
    )


def check_config(config: PreTrainedConfig, sequence_length: int) -> None:
    """Refuse what no chain of blocks comes from.

    Raises:
        WorkloadError: encoder and decoder, random depth, or too long a sequence.
    """
    if config.is_encoder_decoder:
        raise WorkloadError(
            f"{named(config)} has an encoder beside its decoder, and a chain of blocks "
            "was not found: only decoder-only models can be cut here"
        )
    text = config.get_text_config(decoder=True)
    limit = getattr(text, "max_position_embeddings", None)
    if isinstance(limit, int) and 0 < limit < sequence_length:
        raise WorkloadError(
            f"sequence_length {sequence_length} is beyond max_position_embeddings "
            f"{limit} of {named(config)}: raise one or lower the other"
        )
    if rate := getattr(text, "layerdrop", 0.0):
        raise WorkloadError(
            f"layerdrop {rate} of {named(config)} skips whole blocks at random, which "
            "stages cannot agree on: set layerdrop to 0"
        )


def named(config: PreTrainedConfig) -> str:
    """Name of a model in a message."""
    return f"the {config.model_type!r} model"


def on_meta(config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """The model without bytes.

    Raises:
        WorkloadError: `transformers` has no such causal language model.
    """
    config = copy.deepcopy(config)
    build: Callable[..., Any] = AutoModelForCausalLM.from_config
    try:
        with torch.device("meta"):
            model: PreTrainedModel = build(config, dtype=dtype)
    except Exception as error:
        raise WorkloadError(
            f"{named(config)} cannot be built as a causal language model: "
            f"{described(error)}"
        ) from error
    for module in model.modules():
        # With it, a model looks at its inputs for padding: a wait in every step.
        if isinstance(own := getattr(module, "config", None), PreTrainedConfig):
            vars(own)["pad_token_id"] = None  # some refuse it where they check
    model.train()
    return model


def spine_of(model: PreTrainedModel, num_blocks: int) -> tuple[str, ...]:
    """Paths from the model down to the list of its blocks.

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
            "configuration announces: write the layers yourself "
            "(plimsoll_trainer.adapters.sequential.from_factories)"
        )
    path = max(found)[2]
    parts = path.split(".")
    return tuple(".".join(parts[:length]) for length in range(len(parts) + 1))


@dataclass(slots=True)
class Sighting:
    """Findings of one forward pass on the meta device."""

    outputs: dict[str, list[Any]]
    """Of organs that worked before the first block, in order of their first call."""
    after: list[str]
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
    tuple_length: int


def watch(
    model: PreTrainedModel, spine: Sequence[str], sequence_length: int, batch: int
) -> Sighting:
    """Run the forward pass on the meta device and note who is called when.

    Raises:
        WorkloadError: it fails, or does not call every block once and in order.
    """
    seen = Sighting(outputs={}, after=[], calls=[], tuple_length=0)
    blocks = blocks_at(model, spine)
    handles = [
        organ.register_forward_hook(note_organ(seen, path, len(blocks)))
        for path, organ in organs_of(model, spine)
    ]
    order: list[int] = []
    for place, block in enumerate(blocks):
        block.forward = note_block(seen, order, place, block.forward)
    ids = torch.zeros(batch, sequence_length, dtype=torch.long, device="meta")
    # Some rotary tables keep tensors, which would be copied without their values.
    states = {
        module: dict(vars(module))
        for _, organ in organs_of(model, spine)
        for module in organ.modules()
    }
    try:
        with torch.enable_grad():
            run_model(model, ids)
    except Exception as error:
        switch = switch_of(model.config)
        hint = f"; set {switch}=True, without it this is an encoder" if switch else ""
        raise WorkloadError(
            f"{named(model.config)} cannot be followed to its blocks: "
            f"{described(error)}{hint}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
        for block in blocks:
            del block.forward
        for module, state in states.items():
            vars(module).clear()
            vars(module).update(state)
    if order != list(range(len(blocks))):
        raise WorkloadError(
            f"{named(model.config)} does not call its {len(blocks)} blocks once each "
            f"and in order, but {order[:8]}, ...: it is no chain of layers"
        )
    return seen


SWITCHES = ("is_decoder", "causal", "is_causal")
"""Fields by which configurations choose between encoders and causal models."""


def switch_of(config: PreTrainedConfig) -> str:
    """Field that makes an encoder a causal model; empty if it is one, or has none."""
    return next((key for key in SWITCHES if getattr(config, key, None) is False), "")


def note_organ(
    seen: Sighting, path: str, num_blocks: int
) -> Callable[[nn.Module, Any, Any], None]:
    """A hook that notes on which side of the blocks an organ is called."""

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        del module, args
        if not seen.calls:
            seen.outputs.setdefault(path, []).append(output)
        elif len(seen.calls) == num_blocks:
            seen.after.append(path)
        else:
            raise WorkloadError(f"{path!r} works between blocks")

    return hook


def note_block(
    seen: Sighting, order: list[int], place: int, forward: Callable[..., Any]
) -> Callable[..., Any]:
    """A stand-in for a block's forward; only the first block really runs."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        order.append(place)
        seen.calls.append((args, kwargs))
        hidden = hidden_of(args, kwargs)
        if len(order) == 1:
            try:
                output = forward(*args, **kwargs)
            except RuntimeError:
                output = hidden  # routing to experts needs data
            if isinstance(output, (tuple, list)):
                seen.tuple_length = len(output)
        return wrapped(hidden, seen.tuple_length)

    return stand_in


def hidden_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Activations: the first tensor that has a gradient."""
    for tensor in tensors_of((args, kwargs)):
        if tensor.requires_grad:
            return tensor
    raise WorkloadError("no activations reach the block")


def block_call(
    model: PreTrainedModel,
    call: tuple[tuple[Any, ...], dict[str, Any]],
    other: tuple[tuple[Any, ...], dict[str, Any]],
    slots: dict[int, int],
) -> BlockCall:
    """Call of a block, from those with the smaller and the larger batch size.

    New constants are added to `slots`, their numbers by identity.

    Raises:
        WorkloadError: a second argument depends on the activations.
    """
    hidden = hidden_of(*call)
    larger = iter(tensors_of(other))

    def describe(tensor: Tensor) -> Hidden | Slot:
        twin = next(larger)
        if tensor is hidden:
            return Hidden()
        if tensor.requires_grad:
            raise WorkloadError(
                f"{named(model.config)} gives its blocks a second tensor that depends "
                f"on the tokens, of shape {list(tensor.shape)}, but layers pass one "
                "tensor on: it is no chain of layers"
            )
        number = slots.setdefault(id(tensor), len(slots))
        return Slot(number, grows=tensor.shape[:1] != twin.shape[:1])

    hidden_at = [tensor is hidden for tensor in tensors_of(call)].index(True)
    described = map_leaves(call, Tensor, describe)
    args, kwargs = map_leaves(described, Cache, lambda _: None)
    return BlockCall(args=args, kwargs=kwargs, hidden_at=hidden_at)


def forms_of(few: Any, more: Any) -> Any:
    """A tree with a `Form` in place of each tensor, from two batch sizes."""
    larger = iter(tensors_of(more))

    def form(tensor: Tensor) -> Form:
        sizes = tuple(zip(tensor.shape, next(larger).shape, strict=True))
        step = PROBES[1] - PROBES[0]
        slopes = tuple((high - low) // step for low, high in sizes)
        fixed = tuple(
            low - slope * PROBES[0]
            for (low, _), slope in zip(sizes, slopes, strict=True)
        )
        return Form(fixed, slopes, tensor.dtype)

    return map_leaves(few, Tensor, form)
