"""Fake CPU tensors take the operators of a GPU, one test for each rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.live_bytes import CUDA_BLOCK_BYTES, LiveBytes
from plimsoll_profiler.counting.meters import Bench, open_bench
from plimsoll_profiler.counting.operator_policy import cuda_operators
from plimsoll_profiler.probing.layer_state import probe_state
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from plimsoll_trainer.workload import Layer, MakeOptimizer, Workload
from tests.support.workloads import mean_square, points

SMALL, LARGE = 4 * 128 * 128, 4 * 128 * 256


def three_matrices() -> nn.Module:
    """Build layers whose weights are whole blocks of the allocator."""
    sizes = (128, 128), (128, 256), (256, 128)
    return nn.Sequential(*(nn.Linear(*size, bias=False) for size in sizes))


def step_transient_bytes(make: MakeOptimizer, kind: DeviceKind) -> int:
    """Trace an optimizer's step for a kind of device."""
    workload = Workload(
        layers=(Layer(name="all", factory=three_matrices, kind="all"),),
        loss=mean_square,
        batch=points,
        optimizer=make,
    )
    with open_bench(kind, Source.TRACED) as bench:
        return probe_state(workload, 0, bench)[1].optimizer_transient_bytes


def test_an_optimizer_walks_lists_where_its_maker_left_it_open() -> None:
    """On a GPU AdamW holds the roots of all second moments at a time.

    One after the other, as on the CPU or where that was asked for, it holds the root of
    one and what becomes of it, three of the largest matrix at its peak. Fused it holds
    no more than scalars.
    """
    adamw = torch.optim.AdamW
    loop, fused = partial(adamw, foreach=False), partial(adamw, fused=True)
    assert step_transient_bytes(adamw, DeviceKind.CUDA) == SMALL + 2 * LARGE
    for make, kind in ((adamw, DeviceKind.EMULATED), (loop, DeviceKind.CUDA)):
        assert step_transient_bytes(make, kind) == 3 * LARGE
    assert step_transient_bytes(fused, DeviceKind.CUDA) <= 4 * CUDA_BLOCK_BYTES


FP32, BF16 = torch.float32, torch.bfloat16
FLASH = "ScaledDotProductFlashAttentionBackward0"
EFFICIENT = "ScaledDotProductEfficientAttentionBackward0"
HEADS = (2, 4, 32, 16)
"""[batch, heads, length, width]"""


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Trace for a GPU."""
    with open_bench(DeviceKind.CUDA, Source.TRACED) as bench:
        yield bench


def attend(*sizes: tuple[int, ...], dtype: torch.dtype, **fields: Any) -> Tensor:
    """Attend with tensors of the sizes of query, and of key and value."""
    query, key, value = (
        torch.empty(size, dtype=dtype, requires_grad=True)
        for size in (sizes[0], sizes[-1], sizes[-1])
    )
    y = F.scaled_dot_product_attention(query, key, value, **fields)
    assert y.shape == query.shape
    backward(y)
    for each in (query, key, value):
        assert each.grad is not None
        assert each.grad.shape == each.shape
    return y


def backward(y: Tensor) -> None:
    """Run backward from ones."""
    torch.autograd.backward(y, torch.ones_like(y))


def operator_of(y: Tensor) -> str:
    """Name the operator that made a tensor, for the backward pass."""
    assert y.grad_fn is not None
    return y.grad_fn.name()


@pytest.mark.usefixtures("bench")
def test_attention_takes_the_kernel_that_a_gpu_would_take() -> None:
    """Flash in bf16 up to a width of 256; efficient in fp32, wider, or with a mask."""
    wide = (2, 1, 32, 512)
    mask = torch.ones(32, 32, dtype=torch.bool)
    assert operator_of(attend(HEADS, dtype=BF16)) == FLASH
    assert operator_of(attend(HEADS, dtype=BF16, is_causal=True)) == FLASH
    assert operator_of(attend(HEADS, dtype=FP32)) == EFFICIENT
    assert operator_of(attend(wide, dtype=BF16)) == EFFICIENT
    for dtype in (FP32, BF16):
        assert operator_of(attend(HEADS, dtype=dtype, attn_mask=mask)) == EFFICIENT


@pytest.mark.usefixtures("bench")
def test_attention_to_fewer_heads_or_other_lengths() -> None:
    """Heads of keys may serve several; flash has no causal cut of a rectangle."""
    few, short = (2, 2, 32, 16), (2, 4, 24, 16)
    for dtype, operator in ((BF16, FLASH), (FP32, EFFICIENT)):
        y = attend(HEADS, few, dtype=dtype, enable_gqa=True)
        assert operator_of(y) == operator
    assert operator_of(attend(HEADS, short, dtype=BF16)) == FLASH
    assert operator_of(attend(HEADS, short, dtype=BF16, is_causal=True)) == EFFICIENT


@pytest.mark.parametrize("size", [(2, 32, 16), (32, 16), (2, 3, 4, 32, 16)], ids=len)
@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
@pytest.mark.parametrize("is_masked", [False, True])
def test_attention_without_heads_takes_no_fused_kernel(
    size: tuple[int, ...], dtype: torch.dtype, is_masked: bool, bench: Bench
) -> None:
    """The kernels want four dimensions; all others keep the scores of every pair."""
    length = size[-2]
    mask = torch.ones(length, length, dtype=torch.bool) if is_masked else None
    query, key, value = (
        torch.empty(size, dtype=dtype, requires_grad=True) for _ in range(3)
    )
    before = bench.meter.current_bytes
    y = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    scores_bytes = math.prod(size[:-2]) * length * length * FP32.itemsize
    assert bench.meter.current_bytes - before >= scores_bytes
    assert y.shape == query.shape
    backward(y)
    assert query.grad is not None


@pytest.mark.usefixtures("bench")
def test_attention_over_rows_that_cannot_be_read_whole() -> None:
    """Efficient attention wants rows of whole 16 bytes: in fp32 not 18 numbers."""
    assert operator_of(attend((2, 4, 32, 20), dtype=FP32)) == EFFICIENT
    assert operator_of(attend((2, 4, 32, 18), dtype=FP32)) not in (EFFICIENT, FLASH)


def test_dropout_keeps_a_byte_for_each_number(bench: Bench) -> None:
    """Not a float, as on the CPU; without dropout the input itself is given back."""
    x = torch.empty(4, 1024, requires_grad=True)
    before = bench.meter.current_bytes
    y = F.dropout(x, 0.1)
    assert bench.meter.current_bytes - before == 4 * 1024 * (4 + 1)
    assert y.shape == x.shape
    assert F.dropout(x, 0.0) is x
    assert F.dropout(x, 0.1, training=False) is x


def held_bytes(call: Callable[[Tensor, Tensor], Tensor], device: str) -> int:
    """Count what a function holds for its backward pass, on fake tensors of bf16."""
    x, weight = (
        torch.empty(size, dtype=BF16, device=device, requires_grad=True)
        for size in ((4, 1024), (1024,))
    )
    with LiveBytes(CUDA_BLOCK_BYTES) as live:
        y = call(x, weight)
        held: int = live.current_bytes
        del y
    return held


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Call torch's function by its own name, as modules do."""
    return F.rms_norm(x, [1024], weight)


def dropped(x: Tensor, weight: Tensor) -> Tensor:
    """Drop a tenth."""
    return F.dropout(x, 0.1) * weight


@pytest.mark.parametrize("call", [rms_norm, dropped])
def test_what_is_held_is_what_fake_tensors_of_a_gpu_hold(
    call: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """Forward runs on those, and reports; it is backward that they cannot."""
    with FakeTensorMode():
        expected = held_bytes(call, "cuda")
        with cuda_operators():
            assert held_bytes(call, "cpu") == expected


def test_rms_norm_keeps_a_number_for_each_row(bench: Bench) -> None:
    """4 rows: the output, and one block for their scales; then gradients as ever."""
    norm = nn.RMSNorm(1024)
    x = torch.empty(4, 1024, requires_grad=True)
    before = bench.meter.current_bytes
    y = norm(x)
    kept_bytes = bench.meter.current_bytes - before
    assert kept_bytes == y.numel() * y.itemsize + CUDA_BLOCK_BYTES
    backward(y)
    for each in (x, norm.weight):
        assert each.grad is not None
        assert each.grad.shape == each.shape


def test_functions_are_themselves_behind_a_trace() -> None:
    """Every replaced function is put back."""
    before = (F.scaled_dot_product_attention, F.dropout, F.rms_norm)
    with cuda_operators():
        assert F.dropout is not before[1]
    assert (F.scaled_dot_product_attention, F.dropout, F.rms_norm) == before
