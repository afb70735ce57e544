"""Operators without a FLOP formula: which of them matter, and what they may do.

In: an operator, its arguments, what it gave. Called by the work counter. An operator
without a formula is one of two:

    linear          a few operations for each of its numbers (`LINEAR`): its bytes tell
    anything else   is reported by name, with an assumption of what it does

Nothing bounds what an operator does by the sizes of its tensors: a bilinear form takes
11 times as much as a product of matrices of the same size (`assumed_flop`). So that is
what is assumed, and the planner widens seconds that are estimated from it
(`plimsoll_planner.records.layer_costs.UNCOUNTED`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from plimsoll_profiler.counting.flop_formulas import COMPLEX, has_complex
from plimsoll_trainer.torch_internals.operators import tree_iter

FREE_NAMESPACES = ("prim", "prims", "c10d", "_c10d_functional", "symm_mem")
"""Questions about tensors, and messages between ranks."""
FREE_TAGS = (
    torch.Tag.pointwise,
    torch.Tag.reduction,
    torch.Tag.view_copy,
    torch.Tag.inplace_view,
)
LINEAR = (
    *("_to_copy", "alias", "as_strided", "cat", "clone", "copy", "detach"),
    *("arange", "empty", "eye", "fill", "full", "new_", "ones", "zero", "set_"),
    *("bernoulli", "exponential", "native_dropout", "normal", "rand", "uniform"),
    *("_index", "_unsafe", "embedding", "gather", "index", "masked", "scatter", "take"),
    *("constant_pad", "diag", "flip", "reflection_pad", "repeat", "replication_pad"),
    *("lift_fresh", "roll"),
    *("select", "slice", "split", "stack", "tril", "triu", "unfold", "where"),
    *("_adaptive", "_upsample", "adaptive", "avg_pool", "max_pool", "upsample"),
    *("_batch_norm", "_fused_rms_norm", "batch_norm", "native_batch_norm"),
    *("native_group_norm", "native_layer_norm", "rms_norm", "linalg_vector_norm"),
    *("_log_softmax", "_softmax", "binary_cross", "huber_loss", "l1_loss", "mse_loss"),
    *("nll_loss", "smooth_l1", "soft_margin", "_logcumsumexp", "cum", "logcumsumexp"),
    *("all", "any", "arg", "bincount", "bucketize", "histc", "kthvalue", "median"),
    *("max", "mean", "min", "mode", "prod", "searchsorted", "sort", "std", "sum"),
    *("topk", "unique", "var", "_local_scalar_dense", "_foreach", "_fused_ada"),
    *("_fused_sgd", "glu", "im2col", "col2im", "logsumexp", "norm", "_weight_norm"),
    *("_amp", "_prelu", "_efficientzerotensor", "equal", "is_same_size", "item"),
    *("_native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "native_norm"),
    *("_thnn", "_cudnn_rnn_flatten_weight", "_cudnn_init_dropout", "_fused_dropout"),
    *("_embedding", "_masked", "_reshape", "_safe_softmax", "_stack", "_pack_padded"),
    *("affine_grid", "block_diag", "complex", "cudnn_affine_grid", "polar", "trace"),
    *("_grid_sampler", "cudnn_grid_sampler", "grid_sampler", "fractional_max_pool"),
    *("channel_shuffle", "native_channel_shuffle", "pixel_", "rot90", "unsafe_"),
    *("hard", "log_sigmoid", "multi_margin", "multilabel_margin", "rrelu", "renorm"),
    *("_assert", "_unique", "isin", "linspace", "multinomial", "nonzero", "put"),
)
"""Beginnings of the names of operators of aten whose work is a few operations for each
number that they read or write, which the bytes moved stand for."""


def is_counted(operator: Any, table: Mapping[Any, object]) -> bool:
    """Whether an overload has a formula in a table, or does what its bytes tell."""
    if operator.overloadpacket in table or operator.namespace in FREE_NAMESPACES:
        return True
    return operator.namespace == "aten" and is_linear(operator)


@cache
def is_linear(operator: Any) -> bool:
    """Whether an operator of aten does a few operations for each of its numbers."""
    name = operator.name().removeprefix("aten::")
    return (
        operator.is_view
        or any(tag in operator.tags for tag in FREE_TAGS)
        or name.startswith(LINEAR)
        or is_pointwise(name.partition(".")[0].removesuffix("_backward"))
    )


def is_pointwise(name: str) -> bool:
    """Whether an operator of aten works on each number alone, by its name."""
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    overloads = [] if packet is None else packet.overloads()
    return any(torch.Tag.pointwise in getattr(packet, each).tags for each in overloads)


def assumed_flop(given: object, made: object) -> float:
    """FLOPs of a product of matrices with as many numbers, an assumption.

    A product of [m, k] by [k, n] takes 2 m k n FLOPs, and m k * k n * m n is the square
    of m k n; of complex numbers it takes `COMPLEX` times that. Without floating tensors
    there are none.
    """
    inputs, outputs = sizes_of(given), sizes_of(made)
    if not inputs:
        return 0.0
    others = sum(inputs[1:]) or inputs[0]
    per_pair = COMPLEX if has_complex((given, made)) else 1
    return per_pair * 2 * math.sqrt(inputs[0] * others * sum(outputs))


def sizes_of(tree: object) -> list[int]:
    """Numbers in each floating or complex tensor of a tree, the largest first."""
    leaves: Iterable[object] = tree_iter(tree)
    sizes = [
        leaf.numel()
        for leaf in leaves
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())
    ]
    return sorted(sizes, reverse=True)
