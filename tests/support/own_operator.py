"""An operator of one's own by `torch.library`, as models with own kernels have them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


@torch.library.custom_op("plimsoll_tests::cubed", mutates_args=())
def cubed(x: Tensor) -> Tensor:
    """Third power of each number."""
    return x * x * x


@cubed.register_fake
def empty_cubed(x: Tensor) -> Tensor:
    """Memory for it."""
    return torch.empty_like(x)


def note(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    """Keep the input for the gradient."""
    del output
    ctx.save_for_backward(*inputs)


def gradient(ctx: Any, gradient: Tensor) -> Tensor:
    """Its derivative, written by hand."""
    [x] = ctx.saved_tensors
    found: Tensor = 3 * x * x * gradient
    return found


cubed.register_autograd(gradient, setup_context=note)


class Cubes(nn.Module):
    """Blocks that call it."""

    def __init__(self, width: int, num_classes: int) -> None:
        """Make three of them, and a head."""
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Classify vectors."""
        for block in self.blocks:
            x = x + cubed(block(x).tanh())
        found: Tensor = self.head(x)
        return found
