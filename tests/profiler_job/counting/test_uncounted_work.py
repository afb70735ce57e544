"""Operators without a FLOP formula: named, with an assumption, or known by bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it
from torch.nn.attention import SDPBackend, sdpa_kernel

from plimsoll_profiler.counting.uncounted_work import is_linear
from plimsoll_profiler.counting.work_counter import count_work


def test_what_nobody_can_count_is_named() -> None:
    """Distances have no formula: named, a product of the same size is assumed."""
    left, right = torch.ones(8, 16), torch.ones(4, 16)
    work = count_work(lambda: torch.cdist(left, right, p=1.0))
    assert work.uncounted == {"aten._cdist_forward"}
    assert work.flop == 0
    assert work.uncounted_flop == pytest.approx(2 * 8 * 16 * 4)


def test_complex_numbers_are_seen() -> None:
    """An inverse has no formula; products of complex numbers take four times as much.

    As tensors without numbers they were neither counted nor named.
    """
    real, complex_ = (
        count_work(partial(torch.linalg.inv, torch.eye(8, dtype=dtype)))
        for dtype in (torch.float32, torch.complex64)
    )
    assert real.uncounted == complex_.uncounted == {"aten.linalg_inv_ex"}
    assert complex_.uncounted_flop == 4 * real.uncounted_flop > 0


def test_an_operator_of_ones_own_is_named() -> None:
    """A library's operator does who knows what."""
    work = count_work(lambda: doubled(torch.ones(3, 3)))
    assert work.uncounted == {"plimsoll_test.doubled"}


@torch.library.custom_op("plimsoll_test::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    """Double, unseen."""
    return x * 2


def norms(x: Tensor) -> Tensor:
    """Run what works on each number, or on each row."""
    y = F.layer_norm(F.gelu(x), (16,)).softmax(-1)
    y = F.dropout(F.softplus(y)).cumsum(0)[torch.zeros(8, dtype=torch.long)]
    y = F.hardswish(F.logsigmoid(F.rrelu(F.mish(y)))).clamp_(max=9).abs_()
    return torch.cat([y, y.sort(0)[0].clone(), *y.unsafe_split(2)]).amax(0)


def images(x: Tensor) -> Tensor:
    """Run what works on images: norms, shuffled pixels, sampled grids."""
    y = x.reshape(4, 4, 2, 4)
    y = F.batch_norm(y, None, None, training=True)
    y = F.instance_norm(F.pixel_unshuffle(F.pixel_shuffle(y, 2), 2))
    grid = torch.zeros(4, 2, 4, 2)
    return F.grid_sample(F.channel_shuffle(y, 2), grid, align_corners=False)


def attention(x: Tensor) -> Tensor:
    """Run attention that is written out, whose rows may be masked as a whole."""
    mask, rows = torch.zeros(8, 8, dtype=torch.bool), x[None, None]
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(rows, rows, rows, attn_mask=mask)


@pytest.mark.parametrize("run", [norms, images, attention])
def test_what_its_bytes_tell_is_not_named(run: Callable[[Tensor], Tensor]) -> None:
    """Norms, softmax, dropout, indices, sorting: a few operations for each number.

    A batch norm on a CPU and the split gates of a GRU were named.
    """
    x = torch.ones(8, 16, requires_grad=True)
    made: list[Tensor] = []
    forward = count_work(lambda: made.append(run(x)))
    backward = count_work(lambda: torch.autograd.backward(made[0].sum()))
    assert forward.uncounted | backward.uncounted == frozenset()


@pytest.mark.parametrize("name", ["cudnn_batch_norm", "_thnn_fused_lstm_cell"])
def test_kernels_of_a_gpu_are_known_by_name(name: str) -> None:
    """No CPU runs them."""
    assert is_linear(getattr(torch.ops.aten, name).default)
