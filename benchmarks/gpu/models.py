"""Models that `make gpu` measures: shapes of public ones, with torch alone.

In: the name of a model. Out: a `Workload` with random weights; `shapes` has its sizes.

    embedding -> block x depth -> head        tokens; the head may share its weight
    stem      -> residual x depth -> head     images; a module of nobody else's
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.gpu.shapes import MODELS, Shape
from plimsoll_trainer.workload import AdamW, Batch, Layer, Tie, Workload

ENTRYPOINT = "benchmarks.gpu.models:workload"
ROTARY_BASE = 10_000.0
IMAGE_SIZE, CHANNELS, NUM_CLASSES = 64, 3, 1000
GROUPS = 8
"""Of the norms of the own module."""


OWN_MODULE = "own-residual-fp32"
OWN_WIDTH, OWN_DEPTH, OWN_TINY_WIDTH, OWN_TINY_DEPTH = 512, 24, 32, 4
NAMES = (*MODELS, OWN_MODULE)


def workload(*, model: str, tiny: bool = False, seed: int = 0) -> Workload:
    """The workload of a model.

    Args:
        model: one of `NAMES`.
        tiny: small enough for an emulated device.
        seed: of weights and samples.

    Raises:
        KeyError: there is no such model.
    """
    if model == OWN_MODULE:
        width = OWN_TINY_WIDTH if tiny else OWN_WIDTH
        return residual_workload(width, OWN_TINY_DEPTH if tiny else OWN_DEPTH, seed)
    shape = MODELS[model].tiny() if tiny else MODELS[model]
    return decoder_workload(shape, seed)


def decoder_workload(shape: Shape, seed: int) -> Workload:
    """A decoder on random tokens."""
    blocks = tuple(
        Layer(name=f"block.{place}", factory=partial(Block, shape), kind="block")
        for place in range(shape.depth)
    )
    tied = Tie(places=(("embedding", "tokens.weight"), ("head", "output.weight")))
    return Workload(
        layers=(
            Layer(
                name="embedding", factory=partial(Embedding, shape), kind="embedding"
            ),
            *blocks,
            Layer(name="head", factory=partial(Head, shape), kind="head"),
        ),
        loss=token_loss,
        batch=partial(random_tokens, shape.vocabulary, shape.sequence_length, seed),
        optimizer=AdamW(),
        precision=shape.precision,
        ties=(tied,) if shape.is_tied else (),
        seed=seed,
        tokens_per_sample=shape.sequence_length,
    )


def residual_workload(width: int, depth: int, seed: int) -> Workload:
    """Convolutions with skips inside, on random images."""
    residuals = tuple(
        Layer(
            name=f"residual.{place}", factory=partial(Residual, width), kind="residual"
        )
        for place in range(depth)
    )
    return Workload(
        layers=(
            Layer(name="stem", factory=partial(stem, width), kind="stem"),
            *residuals,
            Layer(name="head", factory=partial(image_head, width), kind="head"),
        ),
        loss=functional.cross_entropy,
        batch=partial(random_images, seed),
        optimizer=AdamW(),
        seed=seed,
    )


def norm(shape: Shape) -> nn.Module:
    """The norm of a decoder."""
    kind: Callable[[int], nn.Module]
    kind = nn.RMSNorm if shape.is_llama_like else nn.LayerNorm
    return kind(shape.width)


class Embedding(nn.Module):
    """Tokens and, where nothing turns them later, their positions as vectors."""

    def __init__(self, shape: Shape) -> None:
        """Build the tables."""
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        learned = not shape.is_llama_like
        length = shape.sequence_length
        self.positions = nn.Embedding(length, shape.width) if learned else None

    def forward(self, tokens: Tensor) -> Tensor:
        """Look both up."""
        found: Tensor = self.tokens(tokens)
        if self.positions is None:
            return found
        places = torch.arange(tokens.shape[1], device=tokens.device)
        added: Tensor = self.positions(places)
        return found + added


class Block(nn.Module):
    """Attention and MLP, each behind a norm and beside a skip."""

    def __init__(self, shape: Shape) -> None:
        """Build the layers of one block."""
        super().__init__()
        self.shape = shape
        width, kv_width = shape.width, shape.kv_heads * shape.head_width
        self.before_attention, self.before_mlp = norm(shape), norm(shape)
        self.query = nn.Linear(width, width, bias=shape.qkv_bias)
        self.key = nn.Linear(width, kv_width, bias=shape.qkv_bias)
        self.value = nn.Linear(width, kv_width, bias=shape.qkv_bias)
        self.out = nn.Linear(width, width, bias=not shape.is_llama_like)
        self.up = nn.Linear(width, shape.mlp, bias=not shape.is_llama_like)
        self.down = nn.Linear(shape.mlp, width, bias=not shape.is_llama_like)
        gated = shape.is_llama_like
        self.gate = nn.Linear(width, shape.mlp, bias=False) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        """Run one block on [samples, tokens, width]."""
        x = x + self.attend(self.before_attention(x))
        return x + self.think(self.before_mlp(x))

    def attend(self, x: Tensor) -> Tensor:
        """Causal attention; keys and values of a group serve several queries."""
        shape = self.shape
        query = self.split(self.query(x), shape.heads)
        key = self.split(self.key(x), shape.kv_heads)
        value = self.split(self.value(x), shape.kv_heads)
        if shape.is_llama_like:
            query, key = turned(query), turned(key)
        each = shape.heads // shape.kv_heads
        if each > 1:
            key = key.repeat_interleave(each, dim=1)
            value = value.repeat_interleave(each, dim=1)
        found = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True
        )
        together: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return together

    def split(self, x: Tensor, heads: int) -> Tensor:
        """Part the last dimension into heads: [samples, heads, tokens, head width]."""
        return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)

    def think(self, x: Tensor) -> Tensor:
        """The MLP, gated or with GELU."""
        raised: Tensor = self.up(x)
        if self.gate is None:
            made = functional.gelu(raised, approximate="tanh")
        else:
            made = functional.silu(self.gate(x)) * raised
        lowered: Tensor = self.down(made)
        return lowered


def turned(x: Tensor) -> Tensor:
    """Rotary positions on [samples, heads, tokens, head width]."""
    half = x.shape[-1] // 2
    places = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
    steps = torch.arange(half, device=x.device, dtype=torch.float32) / half
    angles = places[:, None] * ROTARY_BASE**-steps
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


class Head(nn.Module):
    """Norm and projection onto the vocabulary."""

    def __init__(self, shape: Shape) -> None:
        """Build both."""
        super().__init__()
        self.norm = norm(shape)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of every token."""
        found: Tensor = self.output(self.norm(x))
        return found


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of the next token, in fp32 as trainers compute it."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Residual(nn.Module):
    """Two convolutions behind norms, beside a skip."""

    def __init__(self, width: int) -> None:
        """Build the layers."""
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(GROUPS, width) for _ in range(2))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Run on [samples, width, height, width of the image]."""
        y = x
        for normed, convolution in zip(self.norms, self.convolutions, strict=True):
            y = convolution(functional.relu(normed(y)))
        return x + y


def stem(width: int) -> nn.Module:
    """From an image to a quarter of its side, in `width` channels."""
    return nn.Conv2d(CHANNELS, width, 7, stride=4, padding=3)


def image_head(width: int) -> nn.Module:
    """From channels to classes."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, NUM_CLASSES)
    )


def seeded(seed: int, step: int, sample: int) -> torch.Generator:
    """Random numbers that depend on the sample's place alone."""
    return torch.Generator().manual_seed((seed * 1_000_003 + step) * 65_537 + sample)


def random_tokens(
    vocabulary: int, length: int, seed: int, step: int, first: int, count: int
) -> Batch:
    """Tokens, and the next token of each."""
    rows = torch.stack(
        [
            torch.randint(
                vocabulary, (length + 1,), generator=seeded(seed, step, sample)
            )
            for sample in range(first, first + count)
        ]
    )
    return rows[:, :-1], rows[:, 1:]


def random_images(seed: int, step: int, first: int, count: int) -> Batch:
    """Images of noise, and a class of each."""
    size = (CHANNELS, IMAGE_SIZE, IMAGE_SIZE)
    generators = [seeded(seed, step, sample) for sample in range(first, first + count)]
    images = torch.stack([torch.randn(size, generator=one) for one in generators])
    classes = torch.stack(
        [torch.randint(NUM_CLASSES, (), generator=one) for one in generators]
    )
    return images, classes
