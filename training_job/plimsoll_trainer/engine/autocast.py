"""Layers that compute in a smaller type than their parameters are.

    x fp32 -> [ torch.autocast: products in bf16 or fp16, the rest as it says ] -> fp32

The context is that of one forward pass of one layer. So a weight is cast once in each
pass, is kept for its backward pass where that needs it, and is gone with it; a
recomputed layer casts anew, and nothing of the context is left between layers, wherever
the chain is cut. What a layer gives to the next one is brought back to the type of the
parameters, which loses nothing, and is what a residual stream is anyway. Without that
it would depend on torch's list of operators, which is another one for each kind of
device, and so would what a stage has to receive.

In: a module that is built, the type of its products. Called by `built_layer`, so that
stages, probes and comparisons all run it.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def run_in_autocast(module: nn.Module, device_type: str, dtype: torch.dtype) -> None:
    """Let a module run its forward pass in autocast, in place."""
    forward = forward_of(module)
    passed_in = torch.get_default_dtype()

    def in_autocast(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type, dtype):
            y = forward(*args, **kwargs)
        if isinstance(y, tuple):
            return tuple(brought_back(one, dtype, passed_in) for one in y)
        return brought_back(y, dtype, passed_in)

    in_autocast.__signature__ = inspect.signature(module.forward)  # type: ignore[attr-defined]
    module.forward = in_autocast


def brought_back(y: Any, dtype: torch.dtype, passed_in: torch.dtype) -> Any:
    """What a layer gives, in the type of parameters."""
    is_smaller = isinstance(y, Tensor) and y.dtype == dtype
    return y.to(passed_in) if is_smaller else y


def forward_of(module: nn.Module) -> Callable[..., Any]:
    """Forward pass of a module, without a hold on the module.

    What holds itself would stay until it is collected, with all of its parameters.
    """
    own = vars(module).get("forward")
    if own is not None:
        return own  # type: ignore[no-any-return]
    forward, here = type(module).forward, weakref.ref(module)

    def call(*args: Any, **kwargs: Any) -> Any:
        return forward(here(), *args, **kwargs)

    return call
