"""Anatomy of a causal language model: the places to cut it into layers.

`dissection` finds it out; `model_copies` builds layers from it. Words: the *spine* are
the modules around the list of blocks; *organs* are the other children of the spine,
such as an embedding, a norm or a rotary table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from plimsoll_trainer.adapters.trees import tensors_of


@dataclass(frozen=True, slots=True)
class Hidden:
    """Stands for the activations among the arguments of a block."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for a constant tensor among the arguments of a block."""

    number: int
    """Blocks that are given one and the same tensor have the same number here."""
    grows: bool
    """Whether its first dimension grows with the batch."""


@dataclass(frozen=True, slots=True)
class Form:
    """Shape of a tensor as a function of the batch size, and its type."""

    at_zero: tuple[int, ...]
    per_sample: tuple[int, ...]
    dtype: torch.dtype

    def shape(self, batch: int) -> tuple[int, ...]:
        """Shape for a number of samples."""
        sizes = zip(self.at_zero, self.per_sample, strict=True)
        return tuple(fixed + slope * batch for fixed, slope in sizes)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockCall:
    """Call of one block by the model."""

    args: Any
    kwargs: Any
    """With `Hidden` and `Slot` in place of tensors."""
    hidden_at: int
    """Which of the tensors among the arguments the activations are."""

    def hidden_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Activations out of the arguments of such a call."""
        return tensors_of((args, kwargs))[self.hidden_at]


@dataclass(frozen=True, kw_only=True, slots=True)
class Anatomy:
    """A causal language model on the meta device, and where to cut it."""

    model: PreTrainedModel
    """Holds no bytes; parts are made from it by copying."""
    sequence_length: int
    spine: tuple[str, ...]
    """From the model itself down to the list of blocks, which is the last one."""
    before: tuple[str, ...]
    """Organs that work on the way to the first block."""
    after: tuple[str, ...]
    """Organs that work behind the last block."""
    sideways: tuple[str, ...]
    """Those of `before` that make nothing but constants for the blocks."""
    outputs: dict[str, Any]
    """Results of each organ of `before`, with a `Form` in place of each tensor."""
    calls: tuple[BlockCall, ...]
    tuple_length: int
    """Of what a block returns; 0: it returns the activations themselves."""

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The blocks, on the meta device."""
        return blocks_at(self.model, self.spine)

    @property
    def organs(self) -> dict[str, nn.Module]:
        """All organs by their path."""
        return dict(organs_of(self.model, self.spine))

    @property
    def owner_of_blocks(self) -> PreTrainedModel:
        """The innermost model around the blocks, which knows how to start them."""
        around = [self.model.get_submodule(path) for path in self.spine]
        return [module for module in around if isinstance(module, PreTrainedModel)][-1]


def wrapped(x: Tensor, tuple_length: int) -> Any:
    """Activations as a block of the model does."""
    return (x, *[None] * (tuple_length - 1)) if tuple_length else x


class ReachedBlockError(Exception):
    """Carries what a block was called with out of the model's forward pass."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the arguments."""
        super().__init__()
        self.args_of_block = args
        self.kwargs_of_block = kwargs


def blocks_at(model: nn.Module, spine: Sequence[str]) -> list[nn.Module]:
    """Blocks."""
    return list(cast(nn.ModuleList, model.get_submodule(spine[-1])))


def organs_of(
    model: nn.Module, spine: Sequence[str]
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the children of the spine that are not part of it; lists are opened."""
    for owner in spine[:-1]:
        for name, child in model.get_submodule(owner).named_children():
            path = f"{owner}.{name}" if owner else name
            if path not in spine:
                yield from opened(path, child)


def opened(path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module, or what is in it if it is a mere container."""
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        for name, child in module.named_children():
            yield from opened(f"{path}.{name}", child)
    else:
        yield path, module


def run_model(model: PreTrainedModel, ids: Tensor) -> Any:
    """Run the forward pass so that masks depend on sizes alone.

    With an empty cache the model does not look into its positions for several short
    sequences in one sample, which fails without data, needs a mask of
    sequence^2 elements under fake tensors, and a wait on a real device.
    """
    return model(
        input_ids=ids,
        use_cache=False,
        past_key_values=DynamicCache(config=model.config),
    )
