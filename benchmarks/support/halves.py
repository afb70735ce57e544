"""Encoders in halves of layers, as vPipe cuts BERT: attention, then the MLP.

In: sizes. Out: a `Workload` of 2 * depth blocks between an embedding and a head. Called
by `families`. The published plan of vPipe for 8 GPUs has 97 such blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from benchmarks.gpu.models import Embedding, Head, random_tokens, token_loss
from benchmarks.gpu.shapes import Shape
from plimsoll_trainer.workload import AdamW, Layer, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Half:
    """Name of a half of a layer, and its module."""

    name: str
    module: type[nn.Module]


class AttentionHalf(nn.Module):
    """Attention of every token to all others, behind a norm and beside a skip."""

    def __init__(self, shape: Shape) -> None:
        """Build for the shape's width and heads."""
        super().__init__()
        self.heads = shape.heads
        self.norm = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """[samples, tokens, width] -> the same."""
        samples, tokens, _ = x.shape
        query, key, value = (
            self.query_key_value(self.norm(x))
            .view(samples, tokens, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        found = functional.scaled_dot_product_attention(query, key, value)
        y: Tensor = x + self.out(found.transpose(1, 2).flatten(2))
        return y


class MLPHalf(nn.Module):
    """The MLP of a layer, behind a norm and beside a skip."""

    def __init__(self, shape: Shape) -> None:
        """Build for the shape's widths."""
        super().__init__()
        self.body = nn.Sequential(
            nn.LayerNorm(shape.width),
            nn.Linear(shape.width, shape.mlp),
            nn.GELU(),
            nn.Linear(shape.mlp, shape.width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[samples, tokens, width] -> the same."""
        y: Tensor = x + self.body(x)
        return y


HALVES = (
    Half(name="attention", module=AttentionHalf),
    Half(name="mlp", module=MLPHalf),
)


def encoder(shape: Shape, depth: int) -> Workload:
    """Encoder of `depth` layers on random tokens."""
    halves = tuple(
        Layer(
            name=f"{half.name}.{at}",
            kind=half.name,
            factory=partial(half.module, shape),
        )
        for at in range(depth)
        for half in HALVES
    )
    return Workload(
        layers=(
            Layer(
                name="embedding", kind="embedding", factory=partial(Embedding, shape)
            ),
            *halves,
            Layer(name="head", kind="head", factory=partial(Head, shape)),
        ),
        loss=token_loss,
        batch=partial(random_tokens, shape.vocabulary, shape.sequence_length, 0),
        optimizer=AdamW(),
        precision=shape.precision,
        tokens_per_sample=shape.sequence_length,
    )
