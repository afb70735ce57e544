"""Every number has one owner, and parameters and gradients lie alike."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.engine.flat_buffers import FlatBuffer, Share, lay_out, num_numbers
from plimsoll_trainer.engine.gradients import ALIGNMENT, gradient_of

FP32, BF16 = torch.float32, torch.bfloat16
SHAPES = ((5, 7), (), (3,), (40,))
ALIGNED = 48 + 16 + 16 + 48


def parameters(
    shapes: Sequence[Sequence[int]] = SHAPES, dtype: torch.dtype = FP32
) -> list[nn.Parameter]:
    """Build parameters of which no two numbers are equal."""
    made, start = [], 0.0
    for shape in shapes:
        size = torch.Size(shape).numel()
        values = torch.arange(start, start + size, dtype=dtype)
        made.append(nn.Parameter(values.view(shape)))
        start += size
    return made


def divided(replica: int, num_replicas: int) -> FlatBuffer:
    """Lay them out on one of several replicas; they become one buffer."""
    share = Share(replica=replica, num_replicas=num_replicas)
    (buffer,) = lay_out(parameters(), (), FP32, share)
    return buffer


@pytest.mark.parametrize("num_replicas", [2, 3, 5])
def test_every_number_has_one_owner(num_replicas: int) -> None:
    """Over all replicas the pieces are the parameters; padding is nobody's."""
    found: dict[int, list[float]] = {}
    for replica in range(num_replicas):
        buffer = divided(replica, num_replicas)
        assert buffer.gradients.numel() % (ALIGNMENT * num_replicas) == 0
        for piece, place in buffer.owned():
            index = [p is place.whole for p in buffer.parameters].index(True)
            numbers = found.setdefault(index, [])
            assert place.first == len(numbers)
            numbers += piece.tolist()
    everything = [value for index in sorted(found) for value in found[index]]
    assert everything == [float(value) for value in range(79)]


def test_a_step_on_a_piece_is_seen_by_the_parameter_and_its_gradient() -> None:
    """They are views of the same memory."""
    buffer = divided(1, 2)
    before = [p.detach().clone() for p in buffer.parameters]
    for piece, _ in buffer.owned():
        with torch.no_grad():
            piece.add_(1)
        gradient = gradient_of(piece)
        assert gradient is not None
        gradient.fill_(3.0)
    moved = [
        int((p.detach() - b).sum())
        for p, b in zip(buffer.parameters, before, strict=True)
    ]
    own = [int(gradient_of(p).sum() / 3) for p in buffer.parameters]  # type: ignore[union-attr]
    assert moved == own == [0, 0, 3, 40]  # the second half of 128 numbers


def test_a_layer_that_is_too_small_stays_whole() -> None:
    """As it is without replicas: no values of its own, all owned."""
    assert num_numbers(parameters()) == ALIGNED
    share = Share(replica=1, num_replicas=ALIGNED // ALIGNMENT + 1)
    made = parameters()
    (buffer,) = lay_out(made, (), FP32, share)
    assert buffer.values is None
    assert [p for p, _ in buffer.owned()] == made
    small = [*made, *parameters(((3,),), BF16)]
    whole = lay_out(
        [nn.Parameter(p.detach()) for p in small], (), FP32, Share(num_replicas=2)
    )
    assert all(buffer.values is None for buffer in whole)


def test_types_lie_apart_and_keep_their_sums() -> None:
    """Parameters that are exchanged as one are of one type; strides stay."""
    turned = nn.Parameter(torch.arange(64.0).view(4, 16).t())
    small = parameters(((64,),), BF16)
    frozen = nn.Parameter(torch.ones(99), requires_grad=False)
    share = Share(replica=0, num_replicas=2)
    first, second = lay_out([turned, *small, frozen], (), FP32, share)
    assert (first.values.dtype, second.values.dtype) == (FP32, BF16)  # type: ignore[union-attr]
    assert first.gradients.dtype == second.gradients.dtype == FP32
    assert turned.stride() == (1, 16)
    assert torch.equal(turned.detach(), torch.arange(64.0).view(4, 16).t())
    ((piece, _),) = second.owned()
    assert piece.dtype is BF16
    assert piece.numel() == 32
    assert gradient_of(piece).dtype is FP32  # type: ignore[union-attr]
    assert frozen.grad is None


def test_shared_parameters_come_last() -> None:
    """So what is alone is the same numbers wherever the shared one is held."""
    made = parameters(((32,), (32,), (32,)))
    (buffer,) = lay_out(made, made[:1], FP32, Share())
    assert buffer.parameters == (made[1], made[2], made[0])
    assert buffer.own_alone().numel() == 64
    buffer.gradients.copy_(torch.arange(96.0))
    ((tensor, gradient),) = buffer.own_shared()
    assert tensor is made[0]
    assert gradient.tolist() == list(range(64, 96))
