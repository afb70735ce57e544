"""What kernels of the CPU allocate inside, found by running each of them for real.

In: an operator with fake tensors. Out: bytes that are alive while it runs and are
neither its inputs nor what it returns. Called where fake tensors are counted for the
emulated device, in a process that is one, so that a trace sees what its allocator does:
products in bf16 pack their factors (oneDNN), and attention works block by block.

Each kernel is run twice for each kind of arguments, the first time to warm up. One that
would take long is taken to have none. Packed factors are small beside what they are
packed from: 1.4 MB for a product by 4096 x 4096 in bf16, whose weight, gradient and
Adam state take 436 MB (torch 2.15).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.torch_internals import (
    attention_for_cpu,
    attention_for_cpu_backward,
    tree_iter,
    tree_map,
    without_modes,
)

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default)
"""Of their last two tensors."""
ATTENTION = {attention_for_cpu: 0, attention_for_cpu_backward: 1}
"""Which of the tensors the queries are; the keys come next."""
LONG = 2**35
"""Multiplications of a kernel that is not run: a second or more on one core."""


class KernelWorkspaces:
    """Remembers the workspace of each operator and kind of arguments."""

    def __init__(self) -> None:
        """Know none yet."""
        self._device = EmulatedDevice()
        self._known: dict[tuple[object, ...], int] = {}

    def bytes_of(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> int:
        """Return the bytes of one call; operators not named above have none."""
        if operator not in PRODUCTS and operator not in ATTENTION:
            return 0
        leaves = list(tree_iter((args, kwargs)))
        key = (operator, *map(described, leaves))
        if key not in self._known:
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            is_long = multiplications(operator, tensors) > LONG
            self._known[key] = 0 if is_long else self._run(operator, args, kwargs)
        return self._known[key]

    def _run(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        with without_modes():
            args, kwargs = tree_map(like, (args, kwargs))
            operator(*args, **kwargs)
            start_bytes = self._device.current_bytes
            self._device.reset_peak()
            out = operator(*args, **kwargs)
            made_bytes = self._device.current_bytes - start_bytes
            del out
            return max(self._device.peak_bytes - start_bytes - made_bytes, 0)


@cache
def kernel_workspaces() -> KernelWorkspaces:
    """Return what this process knows; it is one device from start to end."""
    return KernelWorkspaces()


def described(leaf: object) -> object:
    """Return what a kernel looks at before it allocates."""
    if isinstance(leaf, Tensor):
        return (tuple(leaf.shape), leaf.stride(), leaf.dtype)
    return leaf


def like(leaf: Any) -> Any:
    """Return a tensor with data in place of one without."""
    if not isinstance(leaf, Tensor):
        return leaf
    made = torch.empty_strided(tuple(leaf.shape), leaf.stride(), dtype=leaf.dtype)
    return made.zero_()


def multiplications(operator: Any, tensors: Sequence[Tensor]) -> int:
    """Return those of one call."""
    if operator in PRODUCTS:
        left, right = tensors[-2:]
        return left.numel() * right.shape[-1]
    query, key = tensors[ATTENTION[operator] :][:2]
    return 2 * query.numel() * key.shape[-2]
