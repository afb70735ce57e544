"""A flat range is a few boxes, which hold its numbers and no others."""

from __future__ import annotations

from itertools import product

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from plimsoll_trainer.checkpoint.flat_range import FlatRange

SHAPES = ((), (7,), (3, 4), (2, 3, 4), (2, 1, 3), (5, 1))


def wholes() -> list[Tensor]:
    """Tensors of all orders in memory, of which no two numbers are equal."""
    made = [torch.arange(float(torch.Size(s).numel())).view(s) for s in SHAPES]
    return [*made, made[2].t(), made[3].permute(2, 0, 1), made[3].permute(1, 2, 0)]


@pytest.mark.parametrize("whole", wholes(), ids=lambda t: f"{t.shape}{t.stride()}")
def test_boxes_hold_the_numbers_of_a_range(whole: Tensor) -> None:
    """Of every range of every tensor; where each stands, the whole has the same."""
    lying = torch.as_strided(whole, (whole.numel(),), (1,))
    for first, end in product(range(whole.numel() + 1), repeat=2):
        if first >= end:
            continue
        held = FlatRange(tensor=lying[first:end], like=whole, first=first)
        boxes = list(held.boxes("it"))
        assert len(boxes) <= 2 * max(whole.dim(), 1) - 1
        seen: list[float] = []
        for box in boxes:
            assert box.whole == tuple(whole.shape)
            there = whole
            for dim, start in enumerate(box.offsets):
                there = there.narrow(dim, start, box.tensor.shape[dim])
            assert torch.equal(box.tensor, there)
            seen += there.flatten().tolist()
        assert sorted(seen) == sorted(lying[first:end].tolist())


def test_the_whole_is_one_box() -> None:
    """In whatever order it lies."""
    whole = torch.ones(3, 4).t()
    (box,) = FlatRange(tensor=whole, like=whole).boxes("it")
    assert box.tensor is whole
    assert box.offsets == (0, 0)
