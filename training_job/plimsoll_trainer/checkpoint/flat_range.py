"""Numbers of a tensor that a rank holds, as boxes that torch's checkpoints know.

Where replicas divide optimizer state, a rank holds a flat range of a parameter's
numbers, in the order in which they lie in memory. A checkpoint has no flat ranges but
boxes of the whole tensor, and of those a range needs few: the end of a row, whole rows,
the beginning of a row. Numbers 2 .. 9 of a 3 x 4 matrix:

    .  .  2  3        box 0: rows 0 .. 0, columns 2 .. 3
    4  5  6  7        box 1: rows 1 .. 1, columns 0 .. 3
    8  9  .  .        box 2: rows 2 .. 2, columns 0 .. 1

So a tensor has its own name and shape in every checkpoint, whoever saved which part of
it, and any other range of it is read by what its boxes have in common with the saved.
Boxes of a part that a rank of a tensor group has lie in the whole where the part does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.tensor import DTensor

from plimsoll_trainer.engine.split_tensors import is_split, whole_of

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """A part of a named tensor that is a tensor itself."""

    name: str
    whole: Sizes
    """Shape of the whole."""
    offsets: Sizes
    tensor: Tensor

    @property
    def index(self) -> MetadataIndex:
        """Key of the box among all of a checkpoint."""
        return MetadataIndex(self.name, self.offsets)

    @property
    def chunk(self) -> ChunkStorageMetadata:
        """Place of the box in the whole."""
        return ChunkStorageMetadata(torch.Size(self.offsets), self.tensor.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Place of a tensor in a larger one, of which other ranks have other parts."""

    whole: Sizes
    """Shape of the larger one."""
    offsets: Sizes

    @classmethod
    def of(cls, tensor: Tensor) -> Part | None:
        """Place of what is here of a tensor; None if that is all of it."""
        whole = whole_of(tensor)
        if not isinstance(whole, DTensor) or not is_split(tensor):
            return None
        [chunk] = whole.__create_chunk_list__()  # type: ignore[no-untyped-call]
        return cls(whole=tuple(whole.shape), offsets=tuple(chunk.offsets))

    def placed(self, box: Box) -> Box:
        """A box of the smaller tensor, as one of the larger."""
        offsets = (a + b for a, b in zip(self.offsets, box.offsets, strict=True))
        return replace(box, whole=self.whole, offsets=tuple(offsets))


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatRange:
    """All numbers of a tensor, or those from one on, as they lie in memory."""

    tensor: Tensor
    """The whole, or a flat piece of it."""
    like: Tensor
    """The whole, or one of the same shape and order in memory."""
    first: int | None = None
    """Of the piece; None: the whole."""
    part: Part | None = None
    """Place of that whole in a larger one, which a tensor group shares; None: there is
    none."""

    @property
    def whole(self) -> Sizes:
        """Shape of the whole that a checkpoint has."""
        return self.part.whole if self.part else tuple(self.like.shape)

    def boxes(self, name: str) -> Iterator[Box]:
        """Yield views of all numbers, under the name of the whole."""
        for box in self._boxes(name):
            yield box if self.part is None else self.part.placed(box)

    def _boxes(self, name: str) -> Iterator[Box]:
        """Yield the same as boxes of what this rank has."""
        whole = tuple(self.like.shape)
        if self.first is None:
            zeros = (0,) * len(whole)
            yield Box(name=name, whole=whole, offsets=zeros, tensor=self.tensor)
            return
        # [1] dimensions as they lie in memory [2] boxes of those [3] back again
        order = sorted(range(len(whole)), key=self.like.stride, reverse=True)
        lying = [whole[dim] for dim in order]
        place_of = [order.index(dim) for dim in range(len(whole))]
        start = 0
        for offsets, sizes in boxes_of(
            self.first, self.first + self.tensor.numel(), lying
        ):
            end = start + math.prod(sizes)
            yield Box(
                name=name,
                whole=whole,
                offsets=tuple(offsets[place] for place in place_of),
                tensor=self.tensor[start:end].view(sizes).permute(place_of),
            )
            start = end


def boxes_of(
    first: int, end: int, shape: Sequence[int]
) -> Iterator[tuple[Sizes, Sizes]]:
    """Yield offsets and sizes of the boxes that numbers first .. end - 1 make up.

    They are in the order of the numbers, at most two for each dimension and one.
    """
    if first == end:
        return
    if not shape:
        yield (), ()
        return
    row, rest = math.prod(shape[1:]), shape[1:]
    first_row, start = divmod(first, row)
    end_row, stop = divmod(end, row)
    if first_row == end_row:
        yield from in_row(first_row, start, stop, rest)
        return
    if start:
        yield from in_row(first_row, start, row, rest)
        first_row += 1
    if first_row < end_row:
        zeros = (0,) * len(rest)
        yield (first_row, *zeros), (end_row - first_row, *rest)
    yield from in_row(end_row, 0, stop, rest)


def in_row(
    row: int, first: int, end: int, shape: Sequence[int]
) -> Iterator[tuple[Sizes, Sizes]]:
    """Yield the boxes of a range that lies within one row."""
    for offsets, sizes in boxes_of(first, end, shape):
        yield (row, *offsets), (1, *sizes)
