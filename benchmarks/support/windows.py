"""Layers of Swin: patches, attention in windows, and the merging of patches.

In: sizes. Out: modules on maps [b, side, side, width]. Called by `families`. Windows of
every other block are shifted by half a window; tokens that wrap around are not masked,
which changes what is learned and no byte.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

HEAD_WIDTH = 32


def embed_patches(width: int, patch: int) -> nn.Module:
    """From an image [b, 3, side, side] to the vectors of its patches."""
    return nn.Sequential(nn.Conv2d(3, width, patch, stride=patch), ChannelsLast())


class ChannelsLast(nn.Module):
    """[b, width, side, side] -> [b, side, side, width]."""

    def forward(self, x: Tensor) -> Tensor:
        """Move the channels."""
        return x.permute(0, 2, 3, 1).contiguous()


class Merge(nn.Module):
    """Four neighbours become one vector of twice the width."""

    def __init__(self, width: int) -> None:
        """Build for maps of `width`."""
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduce = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[b, side, side, width] -> [b, side / 2, side / 2, 2 * width]."""
        corners = [x[:, down::2, right::2] for right in (0, 1) for down in (0, 1)]
        merged: Tensor = self.reduce(self.norm(torch.cat(corners, dim=-1)))
        return merged


class WindowBlock(nn.Module):
    """Attention inside windows and an MLP, each behind a norm and beside a skip."""

    def __init__(self, width: int, window: int, shift: int) -> None:
        """Build for maps of `width`; windows begin `shift` pixels later."""
        super().__init__()
        self.window, self.shift = window, shift
        self.heads = max(width // HEAD_WIDTH, 1)
        self.before_attention, self.before_mlp = (
            nn.LayerNorm(width),
            nn.LayerNorm(width),
        )
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """[b, side, side, width] -> the same."""
        x = x + self.attend(self.before_attention(x))
        y: Tensor = x + self.mlp(self.before_mlp(x))
        return y

    def attend(self, x: Tensor) -> Tensor:
        """Attention inside each window."""
        batch, side, _, width = x.shape
        across, size = side // self.window, self.window
        shifted = torch.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
        tokens = (
            shifted.view(batch, across, size, across, size, width)
            .transpose(2, 3)
            .reshape(batch * across**2, size**2, width)
        )
        query, key, value = (
            self.query_key_value(tokens)
            .view(-1, size**2, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        found = functional.scaled_dot_product_attention(query, key, value)
        together: Tensor = self.out(found.transpose(1, 2).flatten(2))
        back = (
            together.view(batch, across, across, size, size, width)
            .transpose(2, 3)
            .reshape(batch, side, side, width)
        )
        return (
            torch.roll(back, (self.shift, self.shift), (1, 2)) if self.shift else back
        )


def token_head(width: int, num_classes: int) -> nn.Module:
    """From maps [b, side, side, width] to classes."""
    return nn.Sequential(
        nn.LayerNorm(width), MeanOfTokens(), nn.Linear(width, num_classes)
    )


class MeanOfTokens(nn.Module):
    """[b, side, side, width] -> [b, width]."""

    def forward(self, x: Tensor) -> Tensor:
        """Average over the map."""
        return x.mean((1, 2))
