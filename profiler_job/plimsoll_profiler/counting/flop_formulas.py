"""FLOPs of operators that torch's own table leaves out or overstates.

In: an operator and its arguments. Out: FLOPs. Called by the work counter. The rules on
top of `torch.utils.flop_counter`:

    grouped products     every row of the left is multiplied by the matrix of its group
    attention            heads of keys that several of queries share count for each
                         (torch before 2.14 refuses them, and has none for CPUs)
    causal attention     only the pairs of a position with itself and those before it
    recurrent layers     every step is multiplied by each matrix; backward is twice that
    bilinear forms       two products, of the first two factors and with the third
    vectors              a product of a matrix and a vector, or of two vectors
    Fourier transforms   5 N log2 N, half of it where one side is real
    complex numbers      four times the FLOPs of real ones

What has no formula is for `uncounted_work`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from plimsoll_trainer.torch_internals.operators import (
    argument_names,
    of_arguments,
    tree_iter,
)

Formula = Callable[..., int]
"""(arguments of the operator, out_val=what it gave) -> FLOPs"""
COMPLEX = 4
"""Products of real numbers in a product of complex ones, and their sums."""


def formulas() -> dict[Any, Formula]:
    """Formulas by operator, those of torch's own table included."""
    known = {packet: flop_registry[packet] for packet in operators_of_torch()}
    known |= {packet: partial(causal_flop, packet) for packet in attentions()}
    known |= by_operator(FORMULAS)
    found = {packet: partial(complex_flop, known[packet]) for packet in known}
    found |= by_operator(TRANSFORMS)
    return {packet: of_arguments(formula) for packet, formula in found.items()}


def operators_of_torch() -> list[Any]:
    """Operators of torch's own table, without functions of higher order."""
    return [packet for packet in flop_registry if str(packet).startswith("aten.")]


def by_operator(named: Mapping[Formula, tuple[str, ...]]) -> dict[Any, Formula]:
    """Formulas by the operators that there are, of those named for each."""
    return {
        packet: formula
        for formula, names in named.items()
        for packet in filter(None, map(packet_of, names))
    }


def packet_of(name: str) -> Any:
    """Operator by name, None where no library has registered it."""
    namespace, _, operator = name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator, None)


def complex_flop(formula: Formula, *args: Any, **kwargs: Any) -> int:
    """FLOPs by a formula for real numbers, four times as many for complex ones."""
    return formula(*args, **kwargs) * (COMPLEX if has_complex(args) else 1)


def has_complex(tree: object) -> bool:
    """Whether any tensor holds complex numbers."""
    leaves: Iterable[object] = tree_iter(tree)
    return any(isinstance(leaf, Tensor) and leaf.is_complex() for leaf in leaves)


def added(formula: Formula, _x: Tensor, *args: Any, **kwargs: Any) -> int:
    """FLOPs by the formula of a product that is added to `x`."""
    return formula(*args, **kwargs)


def twice(formula: Formula, *args: Any, **kwargs: Any) -> int:
    """FLOPs of both gradients, those of two such products."""
    return 2 * formula(*args, **kwargs)


def grouped_flop(left: Tensor, right: Tensor, *_: Any, **__: Any) -> int:
    """2 m k n for each group, over all groups.

    The groups part the rows of the left, the columns of the right, or what is summed
    over; either way a number of the left meets the n columns of one group.
    """
    rows, inner = left.shape[-2:]
    num_groups = left.shape[0] if left.ndim == right.ndim == BATCHED else 1
    return int(2 * num_groups * rows * inner * right.shape[-1])


BATCHED = 3
"""Dimensions of a matrix for each group."""


@cache
def attentions() -> dict[Any, Formula]:
    """Operators of attention, with the FLOPs of each where it looks at all pairs."""
    packets = filter(None, map(packet_of, ATTENTIONS))
    return {packet: partial(attention_flop, packet) for packet in packets}


def attention_flop(packet: Any, *args: Any, **kwargs: Any) -> int:
    """FLOPs of all pairs of queries and keys.

    Forward multiplies queries by keys, and scores by values. Backward does the first
    again, and multiplies for the gradients of scores, values, queries and keys.
    """
    given = dict(zip(argument_names(packet), args, strict=False)) | kwargs
    *heads, num_queries, width = given["query"].shape
    num_keys, value_width = given["value"].shape[-2:]
    is_backward = argument_names(packet)[0] != "query"
    widths = 3 * width + 2 * value_width if is_backward else width + value_width
    return int(2 * math.prod(heads) * num_queries * num_keys * widths)


def causal_flop(packet: Any, *args: Any, **kwargs: Any) -> int:
    """FLOPs of attention; a causal one looks at half of the pairs."""
    flop = attention_flop(packet, *args, **kwargs)
    given = dict(zip(argument_names(packet), args, strict=False)) | kwargs
    if not given.get("is_causal", False):
        return flop
    num_queries, num_keys = given["query"].shape[-2], given["key"].shape[-2]
    pairs = sum(min(at + 1, num_keys) for at in range(num_queries))
    return int(flop * pairs // (num_queries * num_keys))


def product_flop(left: Tensor, right: Tensor, *_: Any, **__: Any) -> int:
    """2 b m k n of a product of b matrices, or of one, however it is scaled."""
    return 2 * left.numel() * right.shape[-1]


def inner_flop(left: Tensor, right: Tensor, **_: Any) -> int:
    """2 n of two vectors, 2 m n of a matrix and a vector."""
    return 2 * max(left.numel(), right.numel())


def outer_flop(*_: Any, out_val: Tensor, **__: Any) -> int:
    """2 m n of the product of two vectors that is a matrix."""
    return 2 * out_val.numel()


def recurrent_flop(x: Tensor, *args: Any, **_: Any) -> int:
    """FLOPs of all layers and directions: each matrix once for every step.

    The matrices are in a list, with biases; the states of the beginning, which may be
    in another one, have three dimensions.
    """
    lists = [arg for arg in args if isinstance(arg, list | tuple)]
    tensors = [each for one in lists for each in one if isinstance(each, Tensor)]
    return steps_flop(x, [each for each in tensors if each.ndim == MATRIX])


def recurrent_layer_flop(
    x: Tensor, of_input: Tensor, of_state: Tensor, *_: Any, **__: Any
) -> int:
    """FLOPs of one layer in one direction, whose matrices are arguments."""
    return steps_flop(x, [of_input, of_state])


def steps_flop(x: Tensor, matrices: Sequence[Tensor]) -> int:
    """FLOPs of each matrix with one vector for every step of every sample.

    Args:
        x: [steps, samples, width] in either order, or packed [steps, width].
        matrices: of all gates, [gates x hidden, width].
    """
    num_steps = x.numel() // x.shape[-1]
    return 2 * num_steps * sum(matrix.numel() for matrix in matrices)


MATRIX = 2
"""Dimensions of a matrix."""


def trilinear_flop(*args: Any, **_: Any) -> int:
    """FLOPs of a product of three tensors, summed over some dimensions.

    A bilinear form of O outputs, with b samples of widths I and J, is one:

        x [b, 1, I, 1]    weight [1, O, I, J]    y [b, 1, 1, J]    sum over I, J

    First two factors are multiplied, and summed over what the third does not have: 2 b
    O I J; what is left is multiplied by the third: 2 b O J.
    """
    x, y, z = (shown(*each) for each in zip(args[:3], args[3:6], strict=True))
    sums: Sequence[int] = args[6]
    first = [max(pair) for pair in zip(x, y, strict=True)]
    left = [1 if at in sums and z[at] == 1 else size for at, size in enumerate(first)]
    second = [max(pair) for pair in zip(left, z, strict=True)]
    return 2 * (math.prod(first) + math.prod(second))


def shown(factor: Tensor, expanded: Sequence[int]) -> list[int]:
    """Shape of a factor with dimensions of size 1 put in."""
    sizes = iter(factor.shape)
    dims = range(factor.ndim + len(expanded))
    return [1 if at in expanded else next(sizes) for at in dims]


def complex_transform_flop(x: Tensor, dims: Sequence[int], *_: Any, **__: Any) -> int:
    """5 N log2 N of a Fourier transform, N of the transformed dimensions."""
    return math.ceil(5 * x.numel() * transform_steps(x, dims))


def real_transform_flop(
    x: Tensor, dims: Sequence[int], *_: Any, out_val: Tensor, **__: Any
) -> int:
    """Half of that, of the side that is real."""
    real = out_val if x.is_complex() else x
    return math.ceil(2.5 * real.numel() * transform_steps(real, dims))


def transform_steps(x: Tensor, dims: Sequence[int]) -> float:
    """log2 of the numbers of one transform."""
    return math.log2(max(math.prod(x.shape[dim] for dim in dims), 1))


ATTENTIONS = tuple(
    f"aten::_scaled_dot_product_{kind}_attention{rest}"
    for kind in ("flash", "efficient", "cudnn")
    for rest in (
        "",
        "_backward",
        *(("_for_cpu", "_for_cpu_backward") * (kind == "flash")),
    )
)
"""All have query, key and value by these names; backward has a gradient first."""
FALLBACK = "transformers::grouped_mm_fallback"
"""Stand-in of transformers for a grouped product."""
FORMULAS: dict[Formula, tuple[str, ...]] = {
    grouped_flop: (
        *("aten::_grouped_mm", "aten::_scaled_grouped_mm", FALLBACK),
        "aten::_scaled_grouped_mm_v2",
    ),
    partial(twice, grouped_flop): (f"{FALLBACK}_backward",),
    product_flop: ("aten::_scaled_mm_v2",),
    partial(added, product_flop): (
        *("aten::addmm_", "aten::baddbmm_", "aten::addbmm", "aten::addbmm_"),
        "aten::_addmm_activation",
    ),
    inner_flop: ("aten::mv", "aten::dot", "aten::vdot"),
    partial(added, inner_flop): ("aten::addmv", "aten::addmv_"),
    outer_flop: ("aten::addr", "aten::addr_", "aten::ger"),
    recurrent_flop: (
        *("aten::_cudnn_rnn", "aten::miopen_rnn", "aten::lstm", "aten::gru"),
        *("aten::rnn_tanh", "aten::rnn_relu"),
    ),
    partial(twice, recurrent_flop): (
        *("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward"),
    ),
    recurrent_layer_flop: ("aten::mkldnn_rnn_layer",),
    partial(twice, recurrent_layer_flop): ("aten::mkldnn_rnn_layer_backward",),
    trilinear_flop: ("aten::_trilinear",),
}
"""Formulas for real numbers, and the operators that each is for."""
TRANSFORMS: dict[Formula, tuple[str, ...]] = {
    complex_transform_flop: ("aten::_fft_c2c",),
    real_transform_flop: ("aten::_fft_r2c", "aten::_fft_c2r"),
}
"""Formulas that are for complex numbers already."""
