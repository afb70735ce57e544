"""Images that are made, not read: waves under noise, whose label is their direction.

In: sizes and a seed. Out: batches of images and labels. They are there to try a model
and to measure what it needs; a model learns to tell them apart. An image depends on
(seed, step, index) alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from plimsoll_trainer.adapters.masked_text import generator_of
from plimsoll_trainer.workload import Batch

WAVES = 6.0
"""Over the width of an image."""
NOISE = 0.5
"""Standard deviation, of waves between -1 and 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledImages:
    """Images of a fixed size."""

    channels: int
    rows: int
    columns: int
    num_classes: int
    seed: int = 0

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Make samples of a step's global batch.

        Returns:
            Images, fp32 [count, channel, row, column], and labels, int64 [count].
        """
        made = [self.sample(step, index) for index in range(first, first + count)]
        images, labels = zip(*made, strict=True)
        return torch.stack(images), torch.tensor(labels)

    def sample(self, step: int, index: int) -> tuple[Tensor, int]:
        """One image, and its label."""
        generator = generator_of(self.seed, step, index)
        label = int(torch.randint(self.num_classes, (), generator=generator))
        phase = 2 * math.pi * float(torch.rand((), generator=generator))
        angle = math.pi * label / self.num_classes
        y = torch.linspace(0, 1, self.rows, dtype=torch.float32).unsqueeze(1)
        x = torch.linspace(0, 1, self.columns, dtype=torch.float32)
        along = math.cos(angle) * x + math.sin(angle) * y
        wave = torch.sin(2 * math.pi * WAVES * along + phase)
        shape = (self.channels, self.rows, self.columns)
        noise = torch.randn(shape, generator=generator, dtype=torch.float32)
        return wave + NOISE * noise, label
