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
    num_points: int = 16,
    precision: str = "fp32",
    seed: int = 0,
) -> Workload:
    """Build the chain.

    Args:
        depth: number of layers between the first and the last.
        width: of these layers.
        features: numbers in a point.
        classes: to tell apart; at most `features`.
        num_points: in a sample.
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
        batch=partial(points, (num_points, features), classes, seed),
        optimizer=AdamW(learning_rate=1e-3),
        precision=Precision(precision),
        seed=seed,
    )


def layer(wide_in: int, wide_out: int) -> nn.Module:
    """Build one layer."""
    return nn.Sequential(nn.Linear(wide_in, wide_out), nn.GELU())


def cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """Compare in fp32: logits [samples, points, classes], classes [samples, points]."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), classes.flatten())


def points(
    shape: tuple[int, int], classes: int, seed: int, step: int, first: int, count: int
) -> Batch:
    """Make samples of random points; the class of each is its largest coordinate."""
    generator = torch.Generator()
    samples = []
    for index in range(first, first + count):
        generator.manual_seed(random_key(seed, step, index))
        samples.append(torch.randn(shape, generator=generator, dtype=torch.float32))
    inputs = torch.stack(samples)
    return inputs, inputs[..., :classes].argmax(dim=-1)
