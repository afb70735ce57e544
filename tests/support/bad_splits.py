"""Splits that do not give the layer that they split, for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleOutput,
    RowwiseParallel,
)

from plimsoll_trainer.sequence_parallel import used_on_whole
from plimsoll_trainer.workload import Parallelize, Workload
from tests.support.split_workloads import (
    SplitBlock,
    a_split_gpt,
    over,
    split_block_sequence,
)

COLUMNS = ("q", "k", "v", "up")


def without_a_sum(module: nn.Module, mesh: DeviceMesh) -> None:
    """Leave what the last matrix gives as the part of a sum."""
    rows = {"out": RowwiseParallel(), "down": RowwiseParallel(output_layouts=Partial())}
    over(mesh, module, **{name: ColwiseParallel() for name in COLUMNS}, **rows)


class Bias(nn.Module):
    """A bias alone."""

    def __init__(self, width: int) -> None:
        """Build for vectors of `width`."""
        super().__init__()
        self.bias = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, width] -> [b, t, width]."""
        return x + self.bias


class BiasApart(SplitBlock):
    """A block that adds its last bias after the product."""

    def __init__(self, width: int) -> None:
        """Build for vectors of `width`."""
        super().__init__(width, 0.0)
        product = nn.Linear(4 * width, width, bias=False)
        self.add_module("down", nn.Sequential(product, Bias(width)))


def with_a_bias_of_each_rank(module: nn.Module, mesh: DeviceMesh) -> None:
    """Add the last bias on every rank, and add up what they give."""
    styles = {
        "out": RowwiseParallel(),
        "down.0": RowwiseParallel(output_layouts=Partial()),
        "down": PrepareModuleOutput(
            output_layouts=Partial(), desired_output_layouts=Replicate()
        ),
    }
    over(mesh, module, **{name: ColwiseParallel() for name in COLUMNS}, **styles)


class DropsInside(SplitBlock):
    """A block that drops out between the two matrices, where each rank has a part."""

    def __init__(self, width: int, dropout: float) -> None:
        """Build for vectors of `width`."""
        super().__init__(width, 0.0)
        self.add_module("up", nn.Sequential(self.up, nn.Dropout(dropout)))


class AlwaysDrops(nn.Module):
    """Dropout by a number, which goes on where nothing is trained."""

    def forward(self, x: Tensor) -> Tensor:
        """[...] -> [...]."""
        return nn.functional.dropout(x, 0.2)


class AlwaysDropsInside(SplitBlock):
    """A block that does so between the two matrices."""

    def __init__(self, width: int) -> None:
        """Build for vectors of `width`."""
        super().__init__(width, 0.0)
        self.add_module("up", nn.Sequential(self.up, AlwaysDrops()))


def inside(module: nn.Module, mesh: DeviceMesh) -> None:
    """Split it as a block without dropout."""
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up.0")}
    rows = {name: RowwiseParallel() for name in ("out", "down")}
    over(mesh, module, **columns, **rows)


def misspelt(module: nn.Module, mesh: DeviceMesh) -> None:
    """Name no module that there is; torch only warns of it."""
    over(mesh, module, key=ColwiseParallel())


def with_blocks(
    parallelize: Parallelize, factory: Callable[[], nn.Module] | None = None
) -> Workload:
    """A small GPT whose blocks are split in another way, or are other ones."""
    split = a_split_gpt(depth=1)
    layers = [
        replace(layer, parallelize=parallelize, factory=factory or layer.factory)
        if layer.kind == "block"
        else layer
        for layer in split.layers
    ]
    return replace(split, layers=tuple(layers))


def without_a_sum_of_norms(module: nn.Module, mesh: DeviceMesh) -> None:
    """Take the gradient of a norm that has seen a part for that of all."""
    split_block_sequence(module, mesh)
    used_on_whole(*module.get_submodule("norm_1").parameters())


def forgetful_of_norms() -> Workload:
    """A GPT whose blocks are split well, but for norms of parts of sequences."""
    split = a_split_gpt(depth=1)
    first, block, last = split.layers
    wrong = replace(block, parallelize_sequence=without_a_sum_of_norms)
    return replace(split, layers=(first, wrong, last))


def forgetful() -> Workload:
    """A GPT whose blocks lack a sum."""
    return with_blocks(without_a_sum)


def biased() -> Workload:
    """A GPT whose blocks add a bias once for each rank."""
    return with_blocks(with_a_bias_of_each_rank, partial(BiasApart, 48))


def dropping() -> Workload:
    """A GPT whose blocks drop out what is split."""
    return with_blocks(inside, partial(DropsInside, 48, 0.2))


def always_dropping() -> Workload:
    """A GPT whose blocks do so, trained or not."""
    return with_blocks(inside, partial(AlwaysDropsInside, 48))


def misnamed() -> Workload:
    """A GPT whose blocks are split by a name that no module has."""
    return with_blocks(misspelt)
