"""Counts the work of a pass: floating-point operations, and bytes moved.

FLOPs come from torch's own table of operators. Bytes are what every operator that is
not a view reads and writes, as if nothing stayed in a cache: an estimate from above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from plimsoll_trainer.torch_internals import TorchDispatchMode, tree_iter, unsafe_view


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a pass does."""

    flop: float
    traffic_bytes: float


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums the bytes of what operators read and write."""

    def __init__(self) -> None:
        """Start at zero."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.traffic_bytes = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator and count its tensors, unless it only makes a view."""
        del types
        out = func(*args, **(kwargs or {}))
        if not func.is_view and func not in MOVES_NOTHING:
            for leaf in tree_iter((args, kwargs, out)):
                if isinstance(leaf, torch.Tensor):
                    self.traffic_bytes += leaf.numel() * leaf.itemsize
        return out


MOVES_NOTHING = (
    torch.ops.aten.detach.default,
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.prim.device.default,  # only fake tensors are asked for it
    unsafe_view,
)


def count_work(run: Callable[[], object]) -> Work:
    """Run something once and count what it does."""
    flops = FlopCounterMode(display=False)
    with Traffic() as traffic, flops:
        run()
    return Work(
        flop=float(flops.get_total_flops()), traffic_bytes=float(traffic.traffic_bytes)
    )
