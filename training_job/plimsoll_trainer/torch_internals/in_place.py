"""Additions that autograd makes in place, which no mode sees."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from plimsoll_trainer.torch_internals.operators import TorchDispatchMode, without_modes


@dataclass(frozen=True, slots=True)
class Holders:
    """References to the first tensor that a mode was called with."""

    tensor: int
    storage: int
    python: int

    @classmethod
    def of(cls, args: tuple[Any, ...]) -> Holders:
        """Count them; nobody but `args` may hold the tensor on the way here."""
        return cls(
            args[0]._use_count(),
            torch._C._storage_Use_Count(args[0].untyped_storage()._cdata),
            sys.getrefcount(args[0]),
        )


SCATTERS = (
    torch.ops.aten.index_add.default,
    torch.ops.aten.index_put.default,
    torch.ops.aten.scatter.src,
    torch.ops.aten.scatter_add.default,
)
"""Operators that write gradients of indexing, into zeros that nobody else has."""


def is_in_place_unseen(
    operator: Any, args: tuple[Any, ...], of_gradient: Holders
) -> bool:
    """Whether autograd writes to an operator's first argument where no mode looks on.

    Under a dispatch mode autograd lets every operator make a new tensor. Else the
    gradients that meet at a tensor are added into the first of them, if nothing but
    autograd holds it (`can_accumulate_inplace` in torch's source), and gradients of
    indexing are scattered in place (`areAnyTensorSubclassLike`). `of_gradient` is what
    `holders_of_a_gradient` gives.
    """
    is_sum = operator is torch.ops.aten.add.Tensor
    if not (is_sum or operator in SCATTERS) or torch.is_grad_enabled():
        return False
    if not in_backward() or not isinstance(args[0], Tensor):
        return False
    holders = Holders.of(args)
    if not is_sum:
        return holders.python == of_gradient.python
    is_whole = args[0].untyped_storage().nbytes() == args[0].nbytes
    return is_whole and holders == of_gradient


def in_backward() -> bool:
    """Whether autograd runs a backward pass here, other than one that sums itself."""
    node: Any = torch._C._current_autograd_node()  # None outside, unlike its stub
    return node is not None and node.name() not in SUM_THEMSELVES


SUM_THEMSELVES = ("StdMeanBackward0", "VarMeanBackward0")
"""Their sum is one of the formula's own, which takes memory with and without a mode."""


@cache
def holders_of_a_gradient() -> Holders:
    """References to a gradient that autograd alone holds, as a mode sees it.

    Found by looking, as they change with the release of Python and torch. Not to be
    called from within a mode's work, where autograd is off.
    """
    seen: list[Holders] = []

    class Look(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten.add.Tensor:
                seen.append(Holders.of(args))
            return func(*args, **(kwargs or {}))

    with without_modes(), torch.enable_grad():
        x = torch.ones(2, requires_grad=True)
        total = (x.sin() + x.cos()).sum()
        with Look():  # type: ignore[no-untyped-call]
            torch.autograd.grad(total, x)
    return seen[0]
