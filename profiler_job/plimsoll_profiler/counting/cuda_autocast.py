"""Lets autocast on the CPU treat functions as autocast on a GPU does.

Each kind of device has a list of its own of what autocast runs in fp32, and that of a
GPU is far longer: norms, softmax, powers and sums. A trace for a GPU runs on the CPU,
so these functions give there what a GPU would give. Products are in the smaller type on
both.

    in fp32        arguments are cast, and autocast is off inside
    result in fp32 the result is asked for in fp32, unless the caller says otherwise

Source: torch's page on automatic mixed precision, lists of CUDA, of 2.15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from plimsoll_trainer.torch_internals.operators import tree_map

IN_FP32 = (
    *("__rpow__", "__rdiv__", "__rtruediv__", "__pow__", "acos", "asin", "cosh"),
    *("cdist", "cosine_similarity", "cross_entropy", "dist", "erfinv", "exp", "expm1"),
    *("group_norm", "kl_div", "l1_loss", "layer_norm", "log", "log10", "log1p", "log2"),
    *("mse_loss", "nll_loss", "norm", "normalize", "pdist", "pow", "reciprocal"),
    *("renorm", "rsqrt", "sinh", "smooth_l1_loss", "softplus", "tan"),
    *("binary_cross_entropy_with_logits", "cosine_embedding_loss"),
)
RESULT_IN_FP32 = ("cumprod", "cumsum", "log_softmax", "prod", "softmax", "sum")
PLACES = (F, torch, Tensor)
"""Where functions are found by their names."""


@contextmanager
def cuda_autocast() -> Iterator[None]:
    """Let functions of the lists run as on a GPU, wherever autocast is on.

    Their names are replaced, for a mode would be off while backward runs, and with it
    recomputed layers.
    """
    with ExitStack() as stack:
        for names, wrap in ((IN_FP32, in_fp32), (RESULT_IN_FP32, result_in_fp32)):
            for place in PLACES:
                for name in names:
                    if (function := getattr(place, name, None)) is not None:
                        stack.enter_context(
                            mock.patch.object(place, name, wrap(function))
                        )
        yield


def in_fp32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs in fp32 where autocast is on."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            args, kwargs = tree_map(widened, (args, kwargs))
            return function(*args, **kwargs)

    return called


def result_in_fp32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives fp32 where autocast is on, and reads what it is given."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get("input")
        if (
            not torch.is_autocast_enabled("cpu")
            or not isinstance(first, Tensor)
            or first.dtype not in HALVES
        ):
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            kwargs = {"dtype": torch.float32} | kwargs
            return function(*args, **kwargs)

    return called


HALVES = (torch.bfloat16, torch.float16)


def widened(argument: Any) -> Any:
    """A tensor of a smaller floating type in fp32; anything else as it is."""
    is_small = isinstance(argument, Tensor) and argument.dtype in HALVES
    return argument.float() if is_small else argument


def narrowed(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors in the type of products, where autocast is on."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(one.to(dtype) if one.is_floating_point() else one for one in tensors)
