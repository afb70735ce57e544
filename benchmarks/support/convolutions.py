"""Layers of U-Net and CNN: residual and bottleneck blocks, and both ends.

In: sizes. Out: modules on maps. Called by `families`. Norms are over groups.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from tests.support.unet import Form, convolution, pack, unpack

GROUPS = 4


class Residual(nn.Module):
    """Adds to the last map, and passes on the others.

    It works on a copy of its map, for a view would keep all others alive with it.
    """

    def __init__(self, forms: Sequence[Form]) -> None:
        """Build for the forms of all maps."""
        super().__init__()
        self.forms = forms
        self.body = convolution(forms[-1][0], forms[-1][0])

    def forward(self, packed: Tensor) -> Tensor:
        """[b, numbers] -> [b, numbers]."""
        *skips, last = unpack(packed, self.forms)
        own = last.clone()
        return pack([*skips, own + self.body(own)])


def stem(width: int) -> nn.Module:
    """From an image to a quarter of its side."""
    return nn.Sequential(
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        nn.GroupNorm(GROUPS, width),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    )


def class_head(width: int, num_classes: int) -> nn.Module:
    """From maps to classes."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes)
    )


class Bottleneck(nn.Module):
    """Three convolutions beside a skip, which is one too where the form changes."""

    def __init__(self, wide_in: int, wide: int, stride: int) -> None:
        """Build from `wide_in` channels to four times `wide`."""
        super().__init__()
        self.body = nn.Sequential(
            *normed(wide_in, wide, 1, 1),
            nn.ReLU(),
            *normed(wide, wide, 3, stride),
            nn.ReLU(),
            *normed(wide, 4 * wide, 1, 1),
        )
        changes = stride > 1 or wide_in != 4 * wide
        self.skip = (
            nn.Sequential(*normed(wide_in, 4 * wide, 1, stride)) if changes else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """[b, channels, side, side] -> the same, or half the side."""
        beside = x if self.skip is None else self.skip(x)
        return functional.relu(self.body(x) + beside)


def normed(wide_in: int, wide_out: int, size: int, stride: int) -> list[nn.Module]:
    """A convolution and its norm."""
    return [
        nn.Conv2d(
            wide_in, wide_out, size, stride=stride, padding=size // 2, bias=False
        ),
        nn.GroupNorm(GROUPS, wide_out),
    ]
