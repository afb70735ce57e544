"""Watches a forward pass of a model without data: who is called when, and with what.

In: a model on the meta device and the paths of its blocks. Out: a `Sighting`. Called by
`dissection`, for two batch sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_trainer.adapters.block_search import activations_of, cut_nodes
from plimsoll_trainer.adapters.model_anatomy import organs_of, wrapped
from plimsoll_trainer.adapters.model_tasks import Task, blank_inputs, run_model
from plimsoll_trainer.adapters.trees import tensors_of
from plimsoll_trainer.errors import WorkloadError, described

OWN_LAYERS = (
    "write the layers yourself (plimsoll_trainer.adapters.sequential.from_factories)"
)


def named(config: PreTrainedConfig) -> str:
    """Name of a model in a message."""
    return f"the {config.model_type!r} model"


def logits_of(output: Any) -> Tensor:
    """First tensor of a model's output."""
    return tensors_of(output[0])[0]


@dataclass(slots=True)
class Sighting:
    """Findings of one forward pass on the meta device."""

    outputs: dict[str, list[Any]] = field(default_factory=dict)
    """Of organs that worked before the last block, in order of their first call."""
    worked: list[tuple[str, int]] = field(default_factory=list)
    """Organ and the passage that it worked in, in order."""
    calls: list[Call] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    """Paths of the blocks that were called."""
    gaps: list[int] = field(default_factory=list)
    """Passages between two blocks in which something is done."""

    def outputs_in(self, passage: int) -> dict[str, list[Any]]:
        """Results of the organs of a passage."""
        at = {path for path, number in self.worked if number == passage}
        return {path: found for path, found in self.outputs.items() if path in at}


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """What a block was called with, and what it gave."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    hidden: Tensor
    entered: Any
    """Node of the activations in autograd's graph."""
    output: Tensor
    left: Any
    tuple_length: int


def watch(
    model: PreTrainedModel,
    task: Task,
    blocks: Sequence[str],
    sample: tuple[int, ...],
    batch: int,
) -> Sighting:
    """Run the forward pass on the meta device and note who is called when.

    Raises:
        WorkloadError: it fails, does not call every block in order, or leads something
            around a block.
    """
    seen, organs = Sighting(), dict(organs_of(model, blocks))
    handles = [
        organ.register_forward_hook(note_organ(seen, path, len(blocks)))
        for path, organ in organs.items()
    ]
    modules = {path: model.get_submodule(path) for path in blocks}
    for path, block in modules.items():
        block.forward = note_block(seen, path, block.forward, runs=not task.is_causal)
    inputs = blank_inputs(task, model, (batch, *sample), "meta")
    try:
        with followed(model, organs.values(), is_causal=task.is_causal):
            logits = logits_of(run_model(task, model, inputs))
    finally:
        for handle in handles:
            handle.remove()
        for block in modules.values():
            del block.forward
    if tuple(seen.order) != tuple(blocks):
        raise WorkloadError(
            f"{named(model.config)} does not call its {len(blocks)} blocks once each "
            f"and in order, but {seen.order[:8]}, ...: it is no chain of layers"
        )
    check_cuts(model, seen, logits, task)
    return seen


def check_cuts(
    model: PreTrainedModel, seen: Sighting, logits: Tensor, task: Task
) -> None:
    """Refuse a model that leads something around one of its blocks.

    Raises:
        WorkloadError: names the block.
    """
    if task.is_causal and seen.gaps:
        raise WorkloadError(
            f"{named(model.config)} does something between blocks {seen.gaps[0] - 1} "
            f"and {seen.gaps[0]}, which is not found: {OWN_LAYERS}"
        )
    cuts = cut_nodes(logits)
    for place, call in enumerate(seen.calls):
        if call.entered not in cuts or call.left not in cuts:
            raise WorkloadError(
                f"{named(model.config)} leads something around block {place}, but "
                "layers pass one tensor on: it is no chain of layers"
            )


@contextmanager
def followed(
    model: PreTrainedModel, modules: Iterable[nn.Module], *, is_causal: bool
) -> Generator[None]:
    """A forward pass without data; modules keep no tensors of it.

    Some rotary tables do, which would be copied without their values.

    Raises:
        WorkloadError: it fails.
    """
    states = {module: dict(vars(module)) for one in modules for module in one.modules()}
    try:
        with torch.enable_grad():
            yield
    except Exception as error:
        switch = switch_of(model.config) if is_causal else ""
        hint = f"; set {switch}=True, without it this is an encoder" if switch else ""
        raise WorkloadError(
            f"{named(model.config)} cannot be followed to its blocks: "
            f"{described(error)}{hint}"
        ) from error
    finally:
        for module, state in states.items():
            vars(module).clear()
            vars(module).update(state)


SWITCHES = ("is_decoder", "causal", "is_causal")
"""Fields by which configurations choose between encoders and causal models."""


def switch_of(config: PreTrainedConfig) -> str:
    """Field that makes an encoder a causal model; empty if it is one, or has none."""
    return next((key for key in SWITCHES if getattr(config, key, None) is False), "")


def note_organ(
    seen: Sighting, path: str, num_blocks: int
) -> Callable[[nn.Module, Any, Any], None]:
    """A hook that notes between which blocks an organ is called."""

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        del module, args
        passage = len(seen.calls)
        seen.worked.append((path, passage))
        if passage < num_blocks:
            seen.outputs.setdefault(path, []).append(output)

    return hook


def note_block(
    seen: Sighting, path: str, forward: Callable[..., Any], *, runs: bool
) -> Callable[..., Any]:
    """A stand-in for a block's forward.

    It runs the block, or else only the first one, and gives a copy of what goes in.
    """

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        place, seen_before = len(seen.calls), seen.calls[-1:]
        seen.order.append(path)
        hidden = hidden_of(args, kwargs)
        entered = hidden.grad_fn
        if seen_before and hidden is not seen_before[0].output:
            seen.gaps.append(place)
        length = seen_before[0].tuple_length if seen_before else 0
        result: Any = None
        if runs or not place:
            try:
                result = forward(*args, **kwargs)
            except RuntimeError:
                if runs:
                    raise
                result = hidden  # routing to experts needs data
            is_plain = isinstance(result, Tensor)
            length = 0 if is_plain else len(result)
        if not runs:
            result = wrapped(hidden.clone(), length)
        output = result if isinstance(result, Tensor) else result[0]
        seen.calls.append(
            Call(
                args=args,
                kwargs=kwargs,
                hidden=hidden,
                entered=entered,
                output=output,
                left=output.grad_fn,
                tuple_length=length,
            )
        )
        return result

    return stand_in


def hidden_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Activations: the first tensor that has a gradient."""
    found = activations_of((args, kwargs))
    if found is None:
        raise WorkloadError("no activations reach the block")
    return found
