"""Small workloads for tests, built in every rank alike."""

from __future__ import annotations

import os
import signal
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.sequential import from_factories, from_sequential
from plimsoll_trainer.optimizers import optimizer_named
from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.torch_internals.operators import FakeTensor
from plimsoll_trainer.workload import (
    AdamW,
    Layer,
    LossScaling,
    SumAndCount,
    Tie,
    Workload,
)

VOCABULARY = 96
SEQUENCE = 32
NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})
IGNORED = -100
"""A target that does not count."""


class Embedding(nn.Module):
    """Token and position embedding."""

    def __init__(self, width: int) -> None:
        """Build for vectors of `width`."""
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(0.02 * torch.randn(SEQUENCE, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """[b, t] -> [b, t, width]."""
        x: Tensor = self.token(tokens) + self.position
        return x


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        """Build for vectors of `width`, split among `heads`."""
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, width] -> [b, t, width]."""
        b, t, width = x.shape
        q, k, v = (
            part.view(b, t, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).reshape(b, t, width)))
        z: Tensor = x + self.dropout(self.mlp(self.norm_2(x)))
        return z


class Head(nn.Module):
    """Norm and projection on the vocabulary."""

    def __init__(self, width: int) -> None:
        """Build for vectors of `width`."""
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.token = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, width] -> [b, t, vocabulary]."""
        y: Tensor = self.token(self.norm(x))
        return y


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy in fp32."""
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def sum_of_tokens(logits: Tensor, targets: Tensor) -> SumAndCount:
    """Cross entropy in fp32 of all tokens that count, and how many do."""
    total = nn.functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), reduction="sum"
    )
    return total, (targets != IGNORED).sum()


def some_tokens(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make tokens as below; fewer of them count the further a sample is, then none."""
    x, y = tokens(step, first, count)
    y = y.clone()  # both may be views of one row
    for row, sample in enumerate(range(first, first + count)):
        y[row, : sample * 5 % (SEQUENCE + 8)] = IGNORED
    return x, y


def tokens(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make random tokens of each sample; the target is the next one."""
    rows = []
    for sample in range(first, first + count):
        generator = torch.Generator().manual_seed(random_key(7, step, sample) >> 1)
        rows.append(torch.randint(VOCABULARY, (SEQUENCE + 1,), generator=generator))
    made = torch.stack(rows)
    return made[:, :-1].contiguous(), made[:, 1:].contiguous()


def a_gpt(
    *,
    depth: int = 3,
    width: int = 48,
    dropout: float = 0.0,
    tied: bool = True,
    precision: str = "fp32",
    **fields: Any,
) -> Workload:
    """Build a small GPT as `depth + 2` layers, with a tied embedding."""
    block = partial(Block, width, 4, dropout)
    layers = (
        Layer(name="embedding", factory=partial(Embedding, width), kind="embedding"),
        *(Layer(name=f"block.{i}", factory=block, kind="block") for i in range(depth)),
        Layer(name="head", factory=partial(Head, width), kind="head"),
    )
    tie = Tie(places=(("embedding", "token.weight"), ("head", "token.weight")))
    defaults: dict[str, Any] = {
        "loss": next_token_loss,
        "batch": tokens,
        "optimizer": AdamW(learning_rate=1e-3),
        "max_gradient_norm": 0.5,
        "ties": (tie,) if tied else (),
        "precision": Precision(precision),
        "tokens_per_sample": SEQUENCE,
    }
    return Workload(layers=layers, **(defaults | fields))


def a_trained_gpt(
    *,
    optimizer: str = "adamw",
    arguments: Mapping[str, Any] = NO_ARGUMENTS,
    frozen: Sequence[int] = (),
    stilled: Sequence[int] = (),
    first_scale: float = 2.0**8,
    **fields: Any,
) -> Workload:
    """Build a small GPT, untied, with an optimizer by name and some layers frozen.

    Of layers in `frozen` matrices are, and of those in `stilled` everything is.
    Gradients in fp16 do not overflow at the first scale, so that the first step makes
    the optimizer's state.
    """
    made = a_gpt(
        optimizer=optimizer_named(optimizer, **arguments),
        loss_scaling=LossScaling(first=first_scale),
        tied=False,
        **fields,
    )
    least = dict.fromkeys(frozen, 2) | dict.fromkeys(stilled, 0)
    layers = (
        replace(
            layer,
            factory=partial(Frozen, layer.factory, least[place]),
            kind=f"{layer.kind}, frozen from {least[place]}",
        )
        if place in least
        else layer
        for place, layer in enumerate(made.layers)
    )
    return replace(made, layers=tuple(layers))


def with_unused(workload: Workload) -> Workload:
    """A workload whose first layer has parameters that nothing uses."""
    first, *others = workload.layers
    first = replace(first, factory=partial(built_with_unused, first.factory))
    return replace(workload, layers=(first, *others))


def built_with_unused(factory: Callable[[], nn.Module]) -> nn.Module:
    """A module with a matrix and a bias on top."""
    module = factory()
    module.unused = nn.Linear(3, 3)
    return module


class Frozen(nn.Module):
    """A layer whose parameters of so many dimensions and more are not trained."""

    def __init__(self, factory: Callable[[], nn.Module], least: int) -> None:
        """Build it."""
        super().__init__()
        self.layer = factory()
        for parameter in self.layer.parameters():
            parameter.requires_grad_(parameter.ndim < least)

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = self.layer(x)
        return y


class Killer(nn.Module):
    """Kills its process at one micro-batch, as the kernel does when memory is short."""

    def forward(self, x: Tensor) -> Tensor:
        """[b, 4] -> [b, 4]."""
        if not isinstance(x, FakeTensor) and len(x) == int(os.environ[KILL_AT]):
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * x


KILL_AT = "PLIMSOLL_TEST_KILL_AT"


def rows(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make vectors of four numbers; the target is the vector."""
    del step
    x = torch.arange(first, first + count).float().unsqueeze(1).expand(count, 4)
    return x, x


def a_killer() -> Workload:
    """Build a linear layer behind one that kills."""
    return Workload(
        layers=(
            Layer(name="killer", factory=Killer, kind="killer"),
            Layer(name="linear", factory=partial(nn.Linear, 4, 4), kind="linear"),
        ),
        loss=nn.functional.mse_loss,
        batch=rows,
        optimizer=AdamW(),
    )


def a_mixtral() -> Workload:
    """Build a block of four experts, two for each of 32 tokens."""
    # Imports transformers, which most who come here do without.
    from plimsoll_trainer.adapters.causal_lm import causal_lm  # noqa: PLC0415

    return causal_lm(
        {
            "model_type": "mixtral",
            "vocab_size": 256,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "bos_token_id": None,
            "eos_token_id": None,
        },
        sequence_length=32,
        precision=Precision.BF16,
    )


def a_mamba() -> Workload:
    """Build a state-space model, whose gradients are added up and scattered in place.

    A replay that does not know of it holds too much, by the same bytes everywhere.
    """
    # Imports transformers, which most who come here do without.
    from plimsoll_trainer.adapters.causal_lm import causal_lm  # noqa: PLC0415

    return causal_lm(
        {
            "model_type": "mamba",
            "vocab_size": 256,
            "num_hidden_layers": 2,
            "hidden_size": 32,
            "state_size": 8,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        },
        sequence_length=8,
    )


def a_sequential_model() -> nn.Sequential:
    """Build a small net that uses one layer twice and keeps running statistics."""
    torch.manual_seed(3)
    twice = nn.Linear(4, 4)
    layers: dict[str, nn.Module] = {
        "first": nn.Linear(6, 4),
        "norm": nn.BatchNorm1d(5),
        "once": twice,
        "bend": nn.Tanh(),
        "again": twice,
        "last": nn.Linear(4, 6),
    }
    return nn.Sequential(OrderedDict(layers))


def points(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make five random vectors of six numbers; the target is each number's sine."""
    made = []
    for sample in range(first, first + count):
        generator = torch.Generator().manual_seed(random_key(5, step, sample) >> 1)
        made.append(torch.randn(5, 6, generator=generator, dtype=torch.float32))
    x = torch.stack(made)
    return x, x.sin()


def a_sequential(*, precision: str = "fp32", **fields: Any) -> Workload:
    """Build the workload of that net."""
    defaults: dict[str, Any] = {
        "loss": mean_square,
        "batch": points,
        "optimizer": AdamW(learning_rate=1e-2),
        "max_gradient_norm": 0.3,
        "precision": Precision(precision),
    }
    return from_sequential(a_sequential_model(), **(defaults | fields))


class Turning(nn.Module):
    """Returns a view across the memory that it needs in its backward pass."""

    def __init__(self) -> None:
        """Build for vectors of 8."""
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """[b, 5, 8] -> [b, 8, 5]."""
        y: Tensor = self.linear(x).tanh().transpose(1, 2)
        return y


class Turned(nn.Module):
    """Gives back a gradient that lies across its memory."""

    def __init__(self) -> None:
        """Build for vectors of 8."""
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """[b, 8, 5] -> [b, 5, 8]."""
        y: Tensor = self.linear(x.transpose(1, 2).contiguous())
        return y


class Summing(nn.Module):
    """Gives back a gradient of which one row stands for all."""

    def forward(self, x: Tensor) -> Tensor:
        """[b, 5, 8] -> [b, 8]."""
        return x.sum(1)


def a_turning(**fields: Any) -> Workload:
    """Build a chain whose activations and gradients lie across their memory."""
    factories: dict[str, Callable[[], nn.Module]] = {
        "first": partial(nn.Linear, 6, 8),
        "turning": Turning,
        "turned": Turned,
        "summing": Summing,
        "last": partial(nn.Linear, 8, 6),
    }
    defaults: dict[str, Any] = {
        "loss": mean_square,
        "batch": ramps,
        "optimizer": AdamW(learning_rate=1e-2),
    }
    return from_factories(factories, **(defaults | fields))


def a_giving_back() -> Workload:
    """Build a chain of which many layers give back their input, in whole or as a view.

    A cut before each of them leaves two tensors where no cut leaves one.
    """
    factories: dict[str, Callable[[], nn.Module]] = {
        "flat": nn.Flatten,
        "wide": partial(nn.Linear, 30, 64),
        "bend": partial(nn.ReLU, inplace=True),
        "apart": partial(nn.Unflatten, 1, (8, 8)),
        "each": partial(nn.Linear, 8, 8),
        "bend again": partial(nn.ReLU, inplace=True),
        "flat again": partial(nn.Flatten, 1),
        "last": partial(nn.Linear, 64, 6),
    }
    optimizer = AdamW(learning_rate=1e-2)
    return from_factories(factories, loss=mean_square, batch=ramps, optimizer=optimizer)


def ramps(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Make five vectors of six numbers for a sample; nothing is made besides them."""
    x = torch.arange(first, first + count, 1 / 30)[: 30 * count].sin_()
    y = torch.arange(first + step, first + step + count, 1 / 6)[: 6 * count].cos_()
    return x.view(count, 5, 6), y.view(count, 6)


def mean_square(output: Tensor, targets: Tensor) -> Tensor:
    """Compare in fp32."""
    return nn.functional.mse_loss(output.float(), targets)
