"""Lets fake CPU tensors take the operators that a GPU would take.

Without a GPU a fake CUDA tensor cannot run backward, and on the CPU some functions take
operators that save other tensors. So a few functions are sent to what CUDA runs; the
bytes saved then equal those of fake CUDA tensors within 0.1 % (measured in fp32 and
bf16, with and without dropout).

    scaled_dot_product_attention   flash attention; in fp32 or with a mask, efficient
                                   attention; where neither can, products and softmax
    dropout                        native_dropout: a mask of bytes, not of floats
    rms_norm                       the fused kernel
    autocast                       what a GPU runs in fp32 (`cuda_autocast`)
    optimizers                     lists of tensors, where their maker left it open
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from plimsoll_profiler.counting.cuda_autocast import cuda_autocast, narrowed
from plimsoll_trainer.torch_internals.operators import (
    efficient_attention,
    flash_attention,
    lists_by_default,
    math_attention,
)


@contextmanager
def cuda_operators() -> Iterator[None]:
    """Let functions run the operators of CUDA while the context is open.

    The names in `torch.nn.functional` are replaced, not dispatched on: a mode is off
    while backward runs, and recomputed layers run inside backward. Code that imported a
    function by name before keeps the CPU's operator, which saves more.
    """
    with ExitStack() as stack:
        for name, route in ROUTES.items():
            stack.enter_context(mock.patch.object(F, name, route))
        stack.enter_context(lists_by_default())
        stack.enter_context(cuda_autocast())
        yield


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attend as on a GPU of compute capability 8 or newer.

    Args:
        query: [batch, heads, length, width], or with any other leading dimensions.
        key: may have fewer heads.
        value: as `key`.
        attn_mask: added to the scores, or boolean.
        dropout_p: probability.
        is_causal: each position sees those before it.
        scale: of the scores.
        enable_gqa: fewer heads in key and value are allowed.
    """
    query, key, value = narrowed(query, key, value)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype)
    if attn_mask is None and suits_flash(query, key, value, is_causal=is_causal):
        rows = (query, key, value)
        return first(flash_attention(*rows, dropout_p, is_causal, scale=scale))
    if not suits_efficient(query, key, value):
        return first(
            math_attention(
                *(query, key, value, attn_mask, dropout_p, is_causal),
                scale=scale,
                enable_gqa=enable_gqa,
            )
        )
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (each.repeat_interleave(groups, 1) for each in (key, value))
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
    return first(
        efficient_attention(
            *(query, key, value, attn_mask),
            compute_log_sumexp=True,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
        )
    )


def first(made: tuple[Tensor, ...]) -> Tensor:
    """Result of an operator, without what it makes for its backward pass."""
    return made[0]


TORCHS_RMS_NORM = F.rms_norm
HALVES = (torch.bfloat16, torch.float16)
FUSED_DIMENSIONS = 4
WIDEST_FLASH = 256
ALIGNED_BYTES = 16
"""A row of efficient attention is read in pieces of so many bytes."""


def suits_flash(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool) -> bool:
    """Whether flash attention takes tensors, unless there is a mask."""
    return (
        query.ndim == key.ndim == value.ndim == FUSED_DIMENSIONS
        and query.dtype in HALVES
        and query.shape[-1] == key.shape[-1] == value.shape[-1] <= WIDEST_FLASH
        and not (is_causal and query.shape[-2] != key.shape[-2])
    )


def suits_efficient(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether efficient attention takes tensors."""
    return (
        query.ndim == key.ndim == value.ndim == FUSED_DIMENSIONS
        and query.shape[-1] == key.shape[-1]
        and all(
            each.shape[-1] * each.itemsize % ALIGNED_BYTES == 0
            for each in (query, value)
        )
    )


def dropout(
    input: Tensor,  # noqa: A002 - the name is torch's
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    """Drop with a mask of one byte for each number."""
    del inplace
    if not training or p == 0:
        return input
    return first(torch.native_dropout(input, p, train=True))


def rms_norm(
    input: Tensor,  # noqa: A002 - the name is torch's
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Normalise as the fused kernel does."""
    del eps
    if weight is not None and weight.dtype != input.dtype:
        return TORCHS_RMS_NORM(input, normalized_shape, weight)
    num_rows = input.numel() // math.prod(normalized_shape)
    normalised: Tensor = FusedRmsNorm.apply(input, weight, num_rows)
    return normalised


class FusedRmsNorm(torch.autograd.Function):
    """Holds what CUDA's kernel holds: its input, and a number for each row.

    On the CPU the operator of that name is made of others, which keep more.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor | None, num_rows: int) -> Tensor:
        """Read the rows and write as many."""
        scales = rows.new_empty(num_rows, dtype=torch.float32)
        ctx.save_for_backward(rows, weight, scales)
        return rows.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """Read the rows and their gradients, and write gradients."""
        rows, weight, _ = ctx.saved_tensors
        of_weight = None if weight is None else torch.zeros_like(weight)
        return gradients[0] + rows, of_weight, None


ROUTES: dict[str, Callable[..., Tensor]] = {
    "scaled_dot_product_attention": attention,
    "dropout": dropout,
    "rms_norm": rms_norm,
}
