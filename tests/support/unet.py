"""A U-Net as a chain: skip tensors are packed into what its layers pass on.

    stem -> down -> middle -> up -> head        one tensor between any two, flat

Each tensor between two layers holds all maps that are still needed, side by side; a
layer takes views of them and puts a new tensor together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_trainer.adapters.sequential import from_factories
from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.workload import AdamW, Batch, Workload

SIDE, CLASSES = 16, 4
Form = tuple[int, int]
"""Channels and side of a square map."""


def workload(*, width: int = 8, depth: int = 2) -> Workload:
    """Build the chain.

    Args:
        width: channels of the largest maps.
        depth: how often maps are halved, and their channels doubled.
    """
    forms = [(width * 2**level, SIDE // 2**level) for level in range(depth + 1)]
    return from_factories(
        {
            "stem": partial(Stem, forms[0]),
            **{f"down.{at}": partial(Down, forms[: at + 1]) for at in range(depth)},
            "middle": partial(Middle, forms),
            **{
                f"up.{at}": partial(Up, forms[: at + 2])
                for at in reversed(range(depth))
            },
            "head": partial(Head, forms[0]),
        },
        loss=functional.cross_entropy,
        batch=images,
        optimizer=AdamW(),
    )


def unpack(packed: Tensor, forms: Sequence[Form]) -> list[Tensor]:
    """Views of all maps: [b, numbers] -> [b, channels, side, side] each."""
    sizes = [channels * side**2 for channels, side in forms]
    parts = torch.split(packed, sizes, dim=1)
    return [
        part.view(-1, channels, side, side)
        for part, (channels, side) in zip(parts, forms, strict=True)
    ]


def pack(maps: Sequence[Tensor]) -> Tensor:
    """Put maps side by side, in a new tensor."""
    return torch.cat([each.flatten(1) for each in maps], dim=1)


def convolution(wide_in: int, wide_out: int) -> nn.Module:
    """Build a convolution with its norm."""
    return nn.Sequential(
        nn.Conv2d(wide_in, wide_out, 3, padding=1),
        nn.GroupNorm(4, wide_out),
        nn.ReLU(),
    )


class Stem(nn.Module):
    """Images become the first maps."""

    def __init__(self, form: Form) -> None:
        """Build for maps of one form."""
        super().__init__()
        self.body = convolution(3, form[0])

    def forward(self, x: Tensor) -> Tensor:
        """[b, 3, side, side] -> [b, numbers]."""
        return pack([self.body(x)])


class Down(nn.Module):
    """Halves the last map, and keeps all that came before."""

    def __init__(self, forms: Sequence[Form]) -> None:
        """Build for the forms of all maps so far."""
        super().__init__()
        self.forms = forms
        self.body = convolution(forms[-1][0], 2 * forms[-1][0])

    def forward(self, packed: Tensor) -> Tensor:
        """[b, numbers] -> [b, more numbers]."""
        maps = unpack(packed, self.forms)
        return pack([*maps, self.body(functional.max_pool2d(maps[-1], 2))])


class Middle(nn.Module):
    """Adds to the last map."""

    def __init__(self, forms: Sequence[Form]) -> None:
        """Build for the forms of all maps."""
        super().__init__()
        self.forms = forms
        self.body = convolution(forms[-1][0], forms[-1][0])

    def forward(self, packed: Tensor) -> Tensor:
        """[b, numbers] -> [b, numbers]."""
        *skips, last = unpack(packed, self.forms)
        return pack([*skips, last + self.body(last)])


class Up(nn.Module):
    """Doubles the last map, and joins it with the one before."""

    def __init__(self, forms: Sequence[Form]) -> None:
        """Build for the forms of all maps that are left."""
        super().__init__()
        self.forms = forms
        wide, narrow = forms[-1][0], forms[-2][0]
        self.up = nn.ConvTranspose2d(wide, narrow, 2, stride=2)
        self.body = convolution(2 * narrow, narrow)

    def forward(self, packed: Tensor) -> Tensor:
        """[b, numbers] -> [b, fewer numbers]."""
        *skips, before, last = unpack(packed, self.forms)
        return pack([*skips, self.body(torch.cat([before, self.up(last)], dim=1))])


class Head(nn.Module):
    """Tells the class of every pixel."""

    def __init__(self, form: Form) -> None:
        """Build for the largest maps."""
        super().__init__()
        self.forms = [form]
        self.body = nn.Conv2d(form[0], CLASSES, 1)

    def forward(self, packed: Tensor) -> Tensor:
        """[b, numbers] -> [b, classes, side, side]."""
        logits: Tensor = self.body(unpack(packed, self.forms)[0])
        return logits


def images(step: int, first: int, count: int) -> Batch:
    """Make random images; the class of a pixel says how bright it is."""
    generator = torch.Generator()
    samples = []
    for index in range(first, first + count):
        generator.manual_seed(random_key(0, step, index))
        samples.append(torch.rand(3, SIDE, SIDE, generator=generator))
    x = torch.stack(samples)
    return x, (x.mean(1) * CLASSES).long()
