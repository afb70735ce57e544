"""Two towers that rate pairs: a model that is no chain, taken as it is written.

    spec:
      workload: {entrypoint: "examples.two_towers:workload", args: {depth: 3}}

Users and items each pass through a tower of their own, and a rating is read off both,
with the user's features once more beside them. `from_module` captures the forward pass,
so nothing here knows of layers, stages or devices. The towers do not wait for one
another where operators are placed one by one (`search: {engine: graph}`); as a chain
(without it) they are cut into stages across both.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_trainer.adapters.any_module import from_module
from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.workload import AdamW, Batch, Workload


class TwoTowers(nn.Module):
    """Rates pairs of a user and an item."""

    def __init__(self, features: int, width: int, depth: int) -> None:
        """Build both towers and the head.

        Args:
            features: numbers that a user or an item is described by.
            width: of a tower.
            depth: blocks of a tower.
        """
        super().__init__()
        self.users = tower(features, width, depth)
        self.items = tower(features, width, depth)
        self.head = nn.Linear(2 * width + features, 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """[pairs, features] twice -> ratings [pairs]."""
        both = torch.cat([self.users(users), self.items(items), users], dim=-1)
        ratings: Tensor = self.head(both).squeeze(-1)
        return ratings


def tower(features: int, width: int, depth: int) -> nn.Sequential:
    """Build a tower."""
    blocks = [block(width) for _ in range(depth)]
    return nn.Sequential(nn.Linear(features, width), *blocks)


def block(width: int) -> nn.Module:
    """Build one block."""
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())


def workload(
    *, features: int = 32, width: int = 256, depth: int = 3, seed: int = 0
) -> Workload:
    """Build the model.

    Args:
        features: numbers that a user or an item is described by.
        width: of a tower.
        depth: blocks of a tower.
        seed: of weights and samples.
    """
    example = torch.zeros(2, features)
    return from_module(
        partial(TwoTowers, features, width, depth),
        (example, example),
        loss=functional.mse_loss,
        batch=partial(pairs, features, seed),
        optimizer=AdamW(learning_rate=1e-3),
        seed=seed,
    )


def pairs(features: int, seed: int, step: int, first: int, count: int) -> Batch:
    """Make pairs whose rating is how alike they are: ((users, items), ratings)."""
    users, items = torch.empty(count, features), torch.empty(count, features)
    for row in range(count):
        key = random_key(seed, step, first + row)
        generator = torch.Generator().manual_seed(key)
        users[row].normal_(generator=generator)
        items[row].normal_(generator=generator)
    ratings = functional.cosine_similarity(users, items)
    return (users, items), ratings
