"""What kernels of the CPU allocate inside, found by running each of them for real.

In: an operator with fake tensors. Out: bytes that are alive while it runs and are
neither its inputs nor what it returns. Called where fake tensors are counted for the
emulated device, in a process that is one, so that a trace sees what its allocator does:
products in bf16 pack their factors (oneDNN), and attention works block by block.

Each kernel is run twice for each kind of arguments, the first time to warm up. One that
would take long is taken to have none: what it packs is small beside its tensors.
"""

from __future__ import annotations

import math
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
OPERATORS = frozenset(
    (
        *(aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default),
        *(attention_for_cpu, attention_for_cpu_backward),
    )
)
"""Those that were seen to allocate; all others write to what they return."""
MOST_WORK = 2**34
"""Multiplications of a kernel that is run: a second or two on one core."""


class KernelWorkspaces:
    """Remembers the workspace of each operator and kind of arguments."""

    def __init__(self) -> None:
        """Know none yet."""
        self._device = EmulatedDevice()
        self._known: dict[tuple[object, ...], int] = {}

    def bytes_of(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> int:
        """Return the bytes of one call."""
        if operator not in OPERATORS:
            return 0
        key = (operator, *(described(leaf) for leaf in tree_iter((args, kwargs))))
        if key not in self._known:
            is_quick = most_work(args) <= MOST_WORK
            self._known[key] = self._run(operator, args, kwargs) if is_quick else 0
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


def most_work(args: tuple[Any, ...]) -> int:
    """Return a bound of the multiplications: those of the two largest tensors."""
    tensors = [leaf for leaf in tree_iter(args) if isinstance(leaf, Tensor)]
    rows = max((math.prod(tensor.shape[:-1]) for tensor in tensors), default=0)
    return rows * max((tensor.numel() for tensor in tensors), default=0)
