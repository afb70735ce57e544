"""A chain of own layers: a multi-layer perceptron on points that it can tell apart.

    spec:
      workload: {entrypoint: "examples.mlp:workload", args: {depth: 12, width: 512}}

Shows what a model needs that is not from a library: a factory for each layer, a loss,
and samples that follow from step and index alone. Layers made by one and the same
factory are profiled once.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.sequential import from_factories
from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.workload import AdamW, Batch, Workload


def workload(
    *,
    depth: int = 6,
    width: int = 256,
    features: int = 32,
    classes: int = 8,
    precision: str = "fp32",
    seed: int = 0,
) -> Workload:
    """Build the chain.

    Args:
        depth: number of layers between the first and the last.
        width: of these layers.
        features: numbers in a sample.
        classes: to tell apart; at most `features`.
        precision: fp32 or bf16.
        seed: of weights and samples.
    """
    middle = partial(layer, width, width)
    return from_factories(
        {
            "first": partial(layer, features, width),
            **{f"middle.{place}": middle for place in range(depth)},
            "last": partial(nn.Linear, width, classes),
        },
        loss=cross_entropy,
        batch=partial(points, features, classes, seed),
        optimizer=AdamW(learning_rate=1e-3),
        precision=Precision(precision),
        seed=seed,
    )


def layer(wide_in: int, wide_out: int) -> nn.Module:
    """Build one layer."""
    return nn.Sequential(nn.Linear(wide_in, wide_out), nn.GELU())


def cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """Compare in fp32."""
    return functional.cross_entropy(logits.float(), classes)


def points(
    features: int, classes: int, seed: int, step: int, first: int, count: int
) -> Batch:
    """Make random points; the class of each is its largest coordinate."""
    generator = torch.Generator()
    rows = []
    for index in range(first, first + count):
        generator.manual_seed(random_key(seed, step, index))
        row = torch.randn(features, generator=generator, dtype=torch.float32)
        rows.append(row)
    inputs = torch.stack(rows)
    return inputs, inputs[:, :classes].argmax(dim=1)
