"""A small GPT whose layers a tensor group can share, for tests.

As that of `workloads`, but with a matrix each for queries, keys and values, of which
every rank has those of some heads.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from plimsoll_trainer.sequence_parallel import (
    drop_out_parts,
    gathered,
    used_on_parts,
    used_on_whole,
)
from plimsoll_trainer.workload import Layer, Workload
from tests.support.workloads import Embedding, Head, a_gpt

NUM_HEADS = 4


class SplitBlock(nn.Module):
    """A pre-norm transformer block that takes as many heads as there are here."""

    def __init__(self, width: int, dropout: float) -> None:
        """Build for vectors of `width`."""
        super().__init__()
        self.size = width // NUM_HEADS
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        # One sum added to all keys changes nothing, so they have no bias.
        self.q, self.k, self.v = (
            nn.Linear(width, width, bias=name != "k") for name in "qkv"
        )
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, width] -> [b, t, width]."""
        normed = self.norm_1(x)
        q, k, v = (
            project(normed).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for project in (self.q, self.k, self.v)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).flatten(2)))
        z: Tensor = x + self.dropout(
            self.down(nn.functional.gelu(self.up(self.norm_2(x))))
        )
        return z


def over(mesh: DeviceMesh, module: nn.Module, **styles: ParallelStyle) -> None:
    """Split a layer."""
    parallelize_module(module, mesh, dict(styles), src_data_rank=None)


def split_embedding(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank some tokens of the vocabulary."""
    over(mesh, module, token=RowwiseParallel(input_layouts=Replicate()))


def split_block(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank some heads, and some of the numbers between up and down."""
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    rows = {name: RowwiseParallel() for name in ("out", "down")}
    over(mesh, module, **columns, **rows)


def split_head(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank the logits of some tokens, then all ranks have all."""
    over(mesh, module, token=ColwiseParallel(output_layouts=Replicate()))


PARTS, WHOLE = Shard(1), Replicate()


def split_embedding_sequence(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank some tokens of the vocabulary, then its part of the sequence."""
    out = PrepareModuleOutput(output_layouts=WHOLE, desired_output_layouts=PARTS)
    parallelize_module(module, mesh, out)
    split_embedding(module, mesh)
    used_on_whole(module.get_parameter("position"))


def split_block_sequence(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank heads and columns as above, and its part of the rest."""
    columns = {name: ColwiseParallel() for name in "qkv"}
    rows = {name: RowwiseParallel(output_layouts=PARTS) for name in ("out", "down")}
    over(mesh, module, norm_2=SequenceParallel(), **columns, **rows)
    over(mesh, module, up=ColwiseParallel(input_layouts=PARTS))
    norm = module.get_submodule("norm_1")
    used_on_parts(*norm.parameters())
    norm.register_forward_hook(lambda _, __, normed: gathered(normed, mesh))
    drop_out_parts(module.get_submodule("dropout"), mesh)


def split_head_sequence(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank logits as above."""
    token = ColwiseParallel(input_layouts=PARTS, output_layouts=WHOLE)
    over(mesh, module, token=token, norm=SequenceParallel())


def a_split_gpt(
    *, depth: int = 3, width: int = 48, dropout: float = 0.0, **fields: Any
) -> Workload:
    """Build it; all but the layers is as `a_gpt` has it."""
    block = partial(SplitBlock, width, dropout)
    layers = (
        Layer(
            name="embedding",
            factory=partial(Embedding, width),
            kind="embedding",
            parallelize=split_embedding,
            parallelize_sequence=split_embedding_sequence,
        ),
        *(
            Layer(
                name=f"block.{place}",
                factory=block,
                kind="block",
                parallelize=split_block,
                parallelize_sequence=split_block_sequence,
            )
            for place in range(depth)
        ),
        Layer(
            name="head",
            factory=partial(Head, width),
            kind="head",
            parallelize=split_head,
            parallelize_sequence=split_head_sequence,
        ),
    )
    return replace(a_gpt(depth=depth, width=width, **fields), layers=layers)


def a_whole_gpt(**fields: Any) -> Workload:
    """Build the same without a split: each rank of a tensor group has all of it."""
    split = a_split_gpt(**fields)
    layers = tuple(
        replace(layer, parallelize=None, parallelize_sequence=None)
        for layer in split.layers
    )
    return replace(split, layers=layers)
