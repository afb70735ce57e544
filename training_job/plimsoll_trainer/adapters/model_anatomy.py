"""Anatomy of a model of `transformers`: the places to cut it into layers.

`dissection` finds it out; `model_copies` builds layers from it. Words: the *spine* are
the modules around the blocks; *organs* are the other children of the spine, such as an
embedding, a norm or a rotary table. A *passage* is what the model does on its way from
one block to the next, from its inputs to the first one, and from the last one to its
output; those between two blocks are empty in most models:

    inputs -> [passage 0] -> block 0 -> [passage 1] -> block 1 -> [passage 2] -> output
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from plimsoll_trainer.adapters.model_tasks import Task
from plimsoll_trainer.adapters.trees import beside


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
    output: Form
    """Activations that it gives."""
    tuple_length: int
    """Of what it returns; 0: it returns the activations themselves."""

    def hidden_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Activations out of the arguments of such a call."""
        x: Tensor = beside((self.args, self.kwargs), Hidden, (args, kwargs))[0]
        return x


@dataclass(frozen=True, kw_only=True, slots=True)
class Anatomy:
    """A model on the meta device, and where to cut it."""

    model: PreTrainedModel
    """Holds no bytes; parts are made from it by copying."""
    task: Task
    sample: tuple[int, ...]
    """Shape of the inputs of one sample: tokens, or channels, rows and columns."""
    block_paths: tuple[str, ...]
    """Of each block that is called, in order; one that is called again occurs again."""
    passages: tuple[tuple[str, ...], ...]
    """Organs that work in each passage, one passage more than there are blocks."""
    gaps: tuple[int, ...]
    """Passages between two blocks in which something is done."""
    sideways: tuple[str, ...]
    """Organs of the first passage that make nothing but constants for the blocks."""
    without_gradient: tuple[str, ...]
    """Organs whose results depend on no weight that is trained."""
    outputs: dict[str, Any]
    """Results of each organ but those of the last passage, with a `Form` in place of
    each tensor."""
    calls: tuple[BlockCall, ...]
    needs_masks: bool = False
    """Whether layers beside the blocks fail if no attention masks are made."""

    @property
    def layered(self) -> tuple[int, ...]:
        """Passages that are layers: both ends, and those in which something is done."""
        return (0, *self.gaps, len(self.calls))

    @property
    def before(self) -> tuple[str, ...]:
        """Organs that work on the way to the first block."""
        return self.passages[0]

    @property
    def after(self) -> tuple[str, ...]:
        """Organs that work behind the last block."""
        return self.passages[-1]

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The blocks by call, on the meta device."""
        return [self.model.get_submodule(path) for path in self.block_paths]

    @property
    def organs(self) -> dict[str, nn.Module]:
        """All organs by their path."""
        return dict(organs_of(self.model, self.block_paths))

    def owner_of(self, place: int) -> PreTrainedModel:
        """The innermost model around a block, which knows how to start it."""
        around = map(self.model.get_submodule, paths_around(self.block_paths[place]))
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


def paths_around(path: str) -> list[str]:
    """Paths from the model itself down to the module that holds another one."""
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(len(parts))]


def spine_of(blocks: Iterable[str]) -> list[str]:
    """Paths of all modules around blocks, outer ones first."""
    return list(dict.fromkeys(one for path in blocks for one in paths_around(path)))


def organs_of(
    model: nn.Module, blocks: Sequence[str]
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the children of the spine that are not part of it; lists are opened."""
    spine = spine_of(blocks)
    known = {*spine, *blocks}
    for owner in spine:
        for name, child in model.get_submodule(owner).named_children():
            path = f"{owner}.{name}" if owner else name
            if path not in known:
                yield from opened(path, child)


def opened(path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module, or what is in it if it is a mere container."""
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        for name, child in module.named_children():
            yield from opened(f"{path}.{name}", child)
    else:
        yield path, module
