"""Models that `make gpu` measures: shapes of public ones, with torch alone.

In: the name of a model. Out: a `Workload`. Sizes are those of the public configurations
that a model is named after; weights are random. On emulated devices every size is
divided, so that the same code runs in seconds.

    embedding -> block x depth -> head        tokens; the head may share its weight
    stem      -> residual x depth -> head     images; a module of nobody else's
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.workload import AdamW, Batch, Layer, Tie, Workload

ENTRYPOINT = "benchmarks.gpu.models:workload"
ROTARY_BASE = 10_000.0
IMAGE_SIZE, CHANNELS, NUM_CLASSES = 64, 3, 1000
GROUPS = 8
"""Of the norms of the own module."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Sizes of a decoder; the fields of transformers' configurations by our words."""

    width: int
    depth: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int
    sequence_length: int
    precision: Precision
    is_llama_like: bool = True
    """RMSNorm, rotary positions and a gated MLP; else those of GPT-2."""
    qkv_bias: bool = False
    is_tied: bool = False

    @property
    def head_width(self) -> int:
        """Of one attention head."""
        return self.width // self.heads

    def tiny(self) -> Shape:
        """The same shape for an emulated device: thousandths of its numbers."""
        ratio = max(self.heads // self.kv_heads, 1)
        heads = 2 * ratio
        return replace(
            self,
            width=16 * heads,
            depth=min(self.depth, 4),
            heads=heads,
            kv_heads=2,
            mlp=16 * heads * self.mlp // self.width,
            vocabulary=512,
            sequence_length=self.sequence_length // 32,
        )


BF16, FP32 = Precision.BF16, Precision.FP32
MODELS = {
    # openai-community/gpt2, 0.12 B parameters
    "gpt2-bf16-512": Shape(
        width=768,
        depth=12,
        heads=12,
        kv_heads=12,
        mlp=3072,
        vocabulary=50257,
        sequence_length=512,
        precision=BF16,
        is_llama_like=False,
        qkv_bias=True,
        is_tied=True,
    ),
    # openai-community/gpt2-medium, 0.35 B
    "gpt2-medium-fp32-1024": Shape(
        width=1024,
        depth=24,
        heads=16,
        kv_heads=16,
        mlp=4096,
        vocabulary=50257,
        sequence_length=1024,
        precision=FP32,
        is_llama_like=False,
        qkv_bias=True,
        is_tied=True,
    ),
    # openai-community/gpt2-xl, 1.6 B
    "gpt2-xl-bf16-1024": Shape(
        width=1600,
        depth=48,
        heads=25,
        kv_heads=25,
        mlp=6400,
        vocabulary=50257,
        sequence_length=1024,
        precision=BF16,
        is_llama_like=False,
        qkv_bias=True,
        is_tied=True,
    ),
    # meta-llama/Llama-3.2-1B, 1.2 B
    "llama-1b-bf16-4096": Shape(
        width=2048,
        depth=16,
        heads=32,
        kv_heads=8,
        mlp=8192,
        vocabulary=128256,
        sequence_length=4096,
        precision=BF16,
        is_tied=True,
    ),
    # meta-llama/Llama-3.2-3B, 3.2 B
    "llama-3b-bf16-2048": Shape(
        width=3072,
        depth=28,
        heads=24,
        kv_heads=8,
        mlp=8192,
        vocabulary=128256,
        sequence_length=2048,
        precision=BF16,
        is_tied=True,
    ),
    # mistralai/Mistral-7B-v0.3 at 6 of its 32 layers, 1.6 B
    "mistral-6l-bf16-8192": Shape(
        width=4096,
        depth=6,
        heads=32,
        kv_heads=8,
        mlp=14336,
        vocabulary=32768,
        sequence_length=8192,
        precision=BF16,
    ),
    # Qwen/Qwen2.5-0.5B, 0.49 B
    "qwen-0.5b-bf16-4096": Shape(
        width=896,
        depth=24,
        heads=14,
        kv_heads=2,
        mlp=4864,
        vocabulary=151936,
        sequence_length=4096,
        precision=BF16,
        qkv_bias=True,
        is_tied=True,
    ),
}
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
