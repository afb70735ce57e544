"""Families of models whose sizes grow: what the two benches of claims compare plans on.

In: the name of a family, and how many blocks. Out: a `Workload` with random weights.

    GPT      embedding -> block x depth -> head              equal blocks
    U-Net    stem -> down ... middle ... up -> head          wide at both ends
    CNN      stem -> stages that halve the side -> head      activations in front,
                                                             parameters behind
    Swin     patches -> stages that merge patches -> head    windows of attention

All grow by depth alone, one block at a time: a stage of U-Net and CNN in turn, the
third stage of Swin, as its published sizes do. `LARGE` has sizes of published models.
Norms are over groups and not over the batch, so that all layers may be recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from benchmarks.gpu.models import decoder_workload
from benchmarks.gpu.shapes import GPT2, Shape
from benchmarks.support.convolutions import Bottleneck, Residual, class_head, stem
from benchmarks.support.halves import encoder
from benchmarks.support.windows import Merge, WindowBlock, embed_patches, token_head
from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.workload import AdamW, Batch, Layer, Workload
from tests.support.unet import Down, Head, Stem, Up

ENTRYPOINT = "benchmarks.support.families:workload"
NUM_CLASSES = 100
Named = Iterator[tuple[str, str, Callable[[], nn.Module]]]
"""Of each layer its name, its kind, its factory."""


def workload(*, family: str, depth: int) -> Workload:
    """Build a model of a family; the entry point that is profiled and trained.

    Args:
        family: one of `FAMILIES`.
        depth: number of blocks.
    """
    return FAMILIES[family].build(depth)


def gpt(shape: Shape, depth: int) -> Workload:
    """GPT-2's layers; the head has a weight of its own."""
    return decoder_workload(replace(shape, depth=depth), seed=0)


def in_turn(depth: int, num_stages: int) -> list[int]:
    """Blocks of each stage, where blocks are added to the stages in turn."""
    return [(depth + num_stages - 1 - at) // num_stages for at in range(num_stages)]


def of_images(named: Named, *, side: int, is_dense: bool = False) -> Workload:
    """Workload on random images; a class for each of them, or for each pixel."""
    return Workload(
        layers=tuple(
            Layer(name=name, kind=kind, factory=factory)
            for name, kind, factory in named
        ),
        loss=functional.cross_entropy,
        batch=partial(images, side, is_dense),
        optimizer=AdamW(),
    )


def images(side: int, is_dense: bool, step: int, first: int, count: int) -> Batch:
    """Images of noise; the class of a pixel says how bright it is."""
    samples = []
    for index in range(first, first + count):
        generator = torch.Generator().manual_seed(random_key(0, step, index))
        samples.append(torch.rand(3, side, side, generator=generator))
    made = torch.stack(samples)
    bright = made.mean(1)
    classes = bright * 4 if is_dense else bright.mean((1, 2)) * NUM_CLASSES
    return made, classes.long()


def u_net(*, width: int, levels: int, side: int, depth: int) -> Workload:
    """U-Net as a chain, with `depth` residual blocks over its 2 * levels + 1 stages.

    Args:
        width: channels of the largest maps.
        levels: how often maps are halved, and their channels doubled.
        side: of an image.
        depth: see above.
    """
    forms = [(width * 2**at, side // 2**at) for at in range(levels + 1)]
    blocks = in_turn(depth, 2 * levels + 1)

    def layers() -> Named:
        yield "stem", "stem", partial(Stem, forms[0])
        for stage, number in enumerate(blocks):
            level = min(stage, 2 * levels - stage)
            kind = f"level {level}"
            for at in range(number):
                made = partial(Residual, forms[: level + 1])
                yield f"stage.{stage}.{at}", kind, made
            if stage < levels:
                yield (
                    f"down.{level}",
                    f"down {level}",
                    partial(Down, forms[: level + 1]),
                )
            elif stage < 2 * levels:
                yield f"up.{level}", f"up {level}", partial(Up, forms[: level + 1])
        yield "head", "head", partial(Head, forms[0])

    return of_images(layers(), side=side, is_dense=True)


def cnn(*, width: int, side: int, blocks: Sequence[int]) -> Workload:
    """Bottleneck blocks as in ResNet, in stages of `width`, twice, four times ...

    Args:
        width: inside the blocks of the first stage; four times that between them.
        side: of an image.
        blocks: number of blocks in each stage, at least one.
    """

    def layers() -> Named:
        yield "stem", "stem", partial(stem, width)
        wide_in = width
        for stage, number in enumerate(blocks):
            wide = width * 2**stage
            entry = partial(Bottleneck, wide_in, wide, 1 if stage == 0 else 2)
            yield f"stage.{stage}.0", f"entry {stage}", entry
            wide_in = 4 * wide
            for at in range(1, number):
                made = partial(Bottleneck, wide_in, wide, 1)
                yield f"stage.{stage}.{at}", f"block {stage}", made
        yield "head", "head", partial(class_head, wide_in, NUM_CLASSES)

    return of_images(layers(), side=side)


def swin(
    *, width: int, side: int, patch: int, window: int, blocks: Sequence[int]
) -> Workload:
    """Attention in windows, in stages of `width`, twice, four times ... channels.

    Args:
        width: of the first stage.
        side: of an image.
        patch: side of the patches that an image is cut into.
        window: side of a window; divides the side of every stage's map.
        blocks: number of blocks in each stage, at least one.
    """

    def layers() -> Named:
        wide = width
        yield "patches", "patches", partial(embed_patches, wide, patch)
        for stage, number in enumerate(blocks):
            wide = width * 2**stage
            if stage > 0:
                yield f"merge.{stage}", f"merge {stage}", partial(Merge, wide // 2)
            for at in range(number):
                made = partial(WindowBlock, wide, window, at % 2 * (window // 2))
                yield f"stage.{stage}.{at}", f"block {stage} {at % 2}", made
        yield "head", "head", partial(token_head, wide, NUM_CLASSES)

    return of_images(layers(), side=side)


GPT_WIDTH_128 = replace(
    GPT2,
    width=128,
    heads=4,
    kv_heads=4,
    mlp=512,
    vocabulary=2048,
    sequence_length=128,
    precision=Precision.FP32,
    is_tied=False,
)
GPT_6_7B = replace(
    GPT_WIDTH_128,
    width=4096,
    heads=32,
    kv_heads=32,
    mlp=16384,
    vocabulary=50257,
    sequence_length=2048,
    precision=Precision.BF16,
)
"""Sizes of GPT-3 6.7B (32 blocks)."""
OPT_350M = replace(
    GPT_6_7B, width=1024, heads=16, kv_heads=16, mlp=4096, vocabulary=50272
)
"""Sizes of OPT-350M (24 blocks), but for its narrower embedding."""

BERT = replace(GPT_WIDTH_128, width=1024, heads=16, kv_heads=16, mlp=4096)
BERT = replace(BERT, vocabulary=30522, sequence_length=512)
"""Sizes of BERT-large (24 layers)."""


def num_parameters(family: str, depth: int) -> int:
    """Parameters of a model; no two layers share any."""
    layers = workload(family=family, depth=depth).layers
    of_kind: dict[str, int] = {}
    with torch.device("meta"):
        for kind, factory in {layer.kind: layer.factory for layer in layers}.items():
            of_kind[kind] = sum(p.numel() for p in factory().parameters())
    return sum(of_kind[layer.kind] for layer in layers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Models that differ by their depth alone."""

    build: Callable[[int], Workload]
    """From depth to the model."""
    least_depth: int
    """Of the smallest model, which has a layer of every kind."""
    depth: int
    """Of the model whose peaks are compared."""
    micro_batch: int
    """b."""
    shape: str
    """Sizes in a few words."""


def deep_cnn(width: int, side: int, depth: int) -> Workload:
    """CNN whose blocks are added to its four stages in turn."""
    return cnn(width=width, side=side, blocks=in_turn(depth, 4))


def resnet(width: int, side: int, depth: int) -> Workload:
    """CNN that grows in its third stage, as ResNet-50, -101 and -152 do nearly."""
    return cnn(width=width, side=side, blocks=(3, 4, depth, 3))


def deep_swin(width: int, side: int, patch: int, window: int, depth: int) -> Workload:
    """Swin that grows in its third stage, as its sizes T and S do."""
    blocks = (2, 2, depth, 2)
    return swin(width=width, side=side, patch=patch, window=window, blocks=blocks)


def deep_u_net(width: int, levels: int, side: int, depth: int) -> Workload:
    """U-Net whose blocks are added to its stages in turn."""
    return u_net(width=width, levels=levels, side=side, depth=depth)


SMALL = {
    "GPT": Family(
        build=partial(gpt, GPT_WIDTH_128),
        least_depth=1,
        depth=24,
        micro_batch=1,
        shape="width 128, 4 heads, vocabulary 2048, 128 tokens",
    ),
    "U-Net": Family(
        build=partial(deep_u_net, 16, 3, 64),
        least_depth=4,
        depth=28,
        micro_batch=1,
        shape="width 16, 3 levels, 64 px",
    ),
    "CNN": Family(
        build=partial(deep_cnn, 16, 128),
        least_depth=8,
        depth=32,
        micro_batch=1,
        shape="width 16 to 128, 4 stages, 128 px",
    ),
    "Swin": Family(
        build=partial(deep_swin, 32, 64, 2, 4),
        least_depth=2,
        depth=18,
        micro_batch=1,
        shape="width 32 to 256, 4 stages, windows of 4, 64 px in patches of 2",
    ),
}
"""Small enough for eight processes of one machine."""
LARGE = {
    "GPT 6.7B": Family(
        build=partial(gpt, GPT_6_7B),
        least_depth=1,
        depth=32,
        micro_batch=1,
        shape="width 4096, 32 heads, vocabulary 50257, 2048 tokens, bf16",
    ),
    "OPT-350M": Family(
        build=partial(gpt, OPT_350M),
        least_depth=1,
        depth=24,
        micro_batch=8,
        shape="width 1024, 16 heads, vocabulary 50272, 2048 tokens, bf16",
    ),
    "ResNet-101": Family(
        build=partial(resnet, 64, 1024),
        least_depth=2,
        depth=23,
        micro_batch=8,
        shape="width 64 to 512, blocks 3, 4, 23, 3, 1024 px",
    ),
    "U-Net, 64 channels": Family(
        build=partial(deep_u_net, 64, 4, 512),
        least_depth=5,
        depth=18,
        micro_batch=4,
        shape="width 64, 4 levels, two blocks in each of 9 stages, 512 px",
    ),
    "Swin-B": Family(
        build=partial(deep_swin, 128, 384, 4, 12),
        least_depth=2,
        depth=18,
        micro_batch=8,
        shape="width 128 to 1024, blocks 2, 2, 18, 2, windows of 12, 384 px",
    ),
}
"""Sizes of published models, images in fp32; for predictions alone."""
IN_HALVES = {
    "BERT, 48 layers": Family(
        build=partial(encoder, BERT),
        least_depth=1,
        depth=48,
        micro_batch=1,
        shape="width 1024, 16 heads, vocabulary 30522, 512 tokens, blocks in halves",
    ),
}
"""BERT-large with twice its layers, as a chain of 98 blocks; for predictions alone."""
FAMILIES = SMALL | LARGE | IN_HALVES
