"""Memory that kernels of the CPU allocate inside, found by running each for real.

In: an operator with fake tensors. Out: the most bytes that are alive while it runs,
what it returns included, its inputs not; and those that stay alive with what it
returns, which may lie in a larger piece of memory, as a mean squared error does in that
of all squares (torch 2.15). Called where fake tensors are counted for the
emulated device, in a process that is one, so that a trace sees what its allocator does:
products in bf16 pack their factors (oneDNN), attention works block by block,
convolutions and pools bring their tensors into an order of their own, and an operator
of two types makes a copy in one.

No table names these kernels: every operator is run that may allocate. Views do not,
factories do not, and an operator on each number alone does not where all tensors are of
one type.

Each kernel is run twice for each kind of arguments, the first time to warm up. One that
would take long, or fails on zeros, is taken to have none. Packed factors are small
beside what they are packed from: 1.4 MB for a product by 4096 x 4096 in bf16, whose
weight, gradient and Adam state take 436 MB (torch 2.15).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from plimsoll_profiler.counting.flop_formulas import attentions
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.torch_internals.operators import (
    tree_iter,
    tree_map,
    without_modes,
)

LONG_FLOP = 2**36
"""Of a kernel that is not run: a second or more on one core."""
LARGE_BYTES = 2**29
"""Of the tensors of an operator that is not run, where nothing tells its FLOPs."""
NAMESPACES = ("aten", "bitsandbytes")
"""Of operators that may allocate inside; the second has optimizers in 8 bits."""
NEVER_RUN = ("aten::_foreach_", "aten::_fused_", "aten::mkldnn_rnn_layer")
"""The first two walk lists of parameters in place; the last reads from its backward
pass what only its forward pass can write, and crashes on zeros."""


class KernelBytes(NamedTuple):
    """Bytes that one call takes above what was live before it."""

    peak: int
    kept: int
    """As long as what it returns is alive."""


NONE = KernelBytes(0, 0)


class KernelWorkspaces:
    """Keeps the bytes of each operator and kind of arguments."""

    def __init__(self) -> None:
        """Know none yet."""
        self._device = EmulatedDevice()
        self._known: dict[tuple[object, ...], KernelBytes] = {}

    def bytes_of(
        self,
        operator: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        made_bytes: int,
    ) -> KernelBytes:
        """Bytes of one call.

        At least `made_bytes`, which are those of `out`. No tensor has data.
        """
        least = KernelBytes(made_bytes, made_bytes)
        if not may_allocate(operator):
            return least
        leaves = list(tree_iter((args, kwargs)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if not tensors or works_on_each_number(operator, tensors):
            return least
        key = (operator, *map(described, leaves))
        if key not in self._known:
            is_long = takes_long(operator, args, kwargs, out)
            self._known[key] = NONE if is_long else self._run(operator, args, kwargs)
        return KernelBytes(*map(max, self._known[key], least))

    def _run(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> KernelBytes:
        with without_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            try:
                args, kwargs = tree_map(like, (args, kwargs))
                operator(*args, **kwargs)
                start_bytes = self._device.current_bytes
                self._device.reset_peak()
                result = operator(*args, **kwargs)
            except RuntimeError:  # as of an inverse
                return NONE
            kept_bytes = self._device.current_bytes - start_bytes
            del result
            return KernelBytes(self._device.peak_bytes - start_bytes, kept_bytes)


@cache
def kernel_workspaces() -> KernelWorkspaces:
    """Workspaces known to this process, which is one device from start to end."""
    return KernelWorkspaces()


@cache
def may_allocate(operator: Any) -> bool:
    """Whether an operator's kernel may allocate, by its kind alone."""
    return (
        operator.namespace in NAMESPACES
        and not operator.is_view
        and not operator.name().startswith(NEVER_RUN)
    )


def works_on_each_number(operator: Any, tensors: list[Tensor]) -> bool:
    """Whether an operator writes its result number by number, with no copy."""
    is_pointwise = torch.Tag.pointwise in operator.tags
    return is_pointwise and len({tensor.dtype for tensor in tensors}) == 1


def described(leaf: object) -> object:
    """Key of a call: all that a kernel looks at before it allocates."""
    if isinstance(leaf, Tensor):
        return (tuple(leaf.shape), leaf.stride(), leaf.dtype)
    return leaf


def like(leaf: Any) -> Any:
    """A tensor with data in place of one without."""
    if not isinstance(leaf, Tensor):
        return leaf
    made = torch.empty_strided(tuple(leaf.shape), leaf.stride(), dtype=leaf.dtype)
    return made.zero_()


def takes_long(
    operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> bool:
    """Whether a kernel is too long to be run for its workspace alone."""
    packet = operator.overloadpacket
    formula = attentions().get(packet) or flop_registry.get(packet)
    if formula is not None:
        return bool(formula(*args, **kwargs, out_val=out) > LONG_FLOP)
    leaves = tree_iter((args, kwargs, out))
    return sum(x.nbytes for x in leaves if isinstance(x, Tensor)) > LARGE_BYTES
