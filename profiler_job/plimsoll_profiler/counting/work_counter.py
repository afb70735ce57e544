"""Counts the work of a pass: floating-point operations, and bytes moved.

FLOPs come from a table of operators: torch's own, and `flop_formulas`. Of an operator
that does arithmetic and is in neither, the name is reported, and what it is assumed to
do (`uncounted_work`).
Bytes are what every operator that is not a view reads and writes, as if nothing stayed
in a cache: an estimate from above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from plimsoll_profiler.counting.flop_formulas import formulas
from plimsoll_profiler.counting.uncounted_work import assumed_flop, is_counted
from plimsoll_trainer.torch_internals.operators import (
    FlopsHere,
    TorchDispatchMode,
    tree_iter,
    unsafe_view,
    wait_tensor,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Work of a pass."""

    flop: float
    traffic_bytes: float
    uncounted_flop: float = 0.0
    """Assumed of operators without a formula, besides."""
    uncounted: frozenset[str] = field(default_factory=frozenset)
    """Their names."""
    sent_bytes: int = 0
    """By each rank of a tensor group, in rings."""
    latencies: int = 0
    """That each waits for, one after the other."""
    largest_message_bytes: int = 0


SUMS = ("flop", "traffic_bytes", "uncounted_flop", "sent_bytes", "latencies")
"""Fields of work that add up."""


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums what operators read and write; notes those without a formula."""

    def __init__(self, table: Mapping[Any, object]) -> None:
        """Start at zero; `table` holds the formulas by operator."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.traffic_bytes = 0
        self.uncounted_flop = 0.0
        self.uncounted: set[str] = set()
        self.sent_bytes = 0
        self.latencies = 0
        self.largest_message_bytes = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator and count its tensors, unless it only makes a view."""
        if DTensor in types:  # counted is what it does with the parts that are here
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        self.note_message(func, args, out)
        if not func.is_view and func not in MOVES_NOTHING:
            for leaf in tree_iter((args, kwargs, out)):
                if isinstance(leaf, torch.Tensor):
                    self.traffic_bytes += leaf.numel() * leaf.itemsize
            if not is_counted(func, self.table):
                self.note(func, assumed_flop((args, kwargs), out))
        return out

    def note_message(self, operator: Any, args: tuple[Any, ...], out: Any) -> None:
        """Note what a collective of a tensor group sends over each link of a ring."""
        if rounds := rounds_of(operator):
            whole = max(args[0].nbytes, out.nbytes)
            sent_bytes, latencies = ring_of(whole, rounds)
            self.sent_bytes += sent_bytes
            self.latencies += latencies
            self.largest_message_bytes = max(self.largest_message_bytes, whole)

    def note(self, operator: Any, flop: float) -> None:
        """Note an operator without a formula, unless it computes with integers."""
        if flop:
            self.uncounted.add(str(operator.overloadpacket))
            self.uncounted_flop += flop


MOVES_NOTHING = (
    torch.ops.aten.detach.default,
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.prim.device.default,  # only fake tensors are asked for it
    unsafe_view,
    wait_tensor,
)
COLLECTIVES = {"all_reduce": 2, "all_gather_into_tensor": 1, "reduce_scatter_tensor": 1}
"""Rounds of a ring: a sum of all for all is a scatter of sums, then a gather."""


def rounds_of(operator: Any) -> int:
    """Rounds in which a collective that was dispatched goes; 0 for other operators."""
    if operator.namespace != "_c10d_functional":
        return 0
    name = operator.name().partition("::")[2].partition(".")[0]
    return COLLECTIVES.get(name.removesuffix("_"), 0)


def ring_of(num_bytes: int, rounds: int) -> tuple[int, int]:
    """Bytes that each rank sends, and latencies that it waits for, in a ring."""
    size = dist.get_world_size()  # a prober is in a group that shares layers
    return rounds * -(-num_bytes * (size - 1) // size), rounds * (size - 1)


class WorkCounter:
    """Counts what is done within it."""

    def __init__(self) -> None:
        """Start at zero."""
        self._flops = FlopsHere(display=False, custom_mapping=formulas())
        self._traffic = Traffic(self._flops.flop_registry)
        self._repeated = dict.fromkeys(SUMS, 0.0)

    def __enter__(self) -> Self:
        """Count from now on."""
        self._traffic.__enter__()  # type: ignore[no-untyped-call]
        self._flops.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Count no more."""
        self._flops.__exit__(*error)  # type: ignore[no-untyped-call]
        self._traffic.__exit__(*error)  # type: ignore[no-untyped-call]

    def repeat(self, since: Work, times: int) -> None:
        """Count all since then so many times more."""
        now = self.work
        for name in SUMS:
            done = getattr(now, name) - getattr(since, name)
            self._repeated[name] += times * done

    @property
    def work(self) -> Work:
        """Work so far."""
        traffic, more = self._traffic, self._repeated
        return Work(
            flop=self._flops.get_total_flops() + more["flop"],
            traffic_bytes=traffic.traffic_bytes + more["traffic_bytes"],
            uncounted_flop=traffic.uncounted_flop + more["uncounted_flop"],
            uncounted=frozenset(traffic.uncounted),
            sent_bytes=int(traffic.sent_bytes + more["sent_bytes"]),
            latencies=int(traffic.latencies + more["latencies"]),
            largest_message_bytes=traffic.largest_message_bytes,
        )


def count_work(run: Callable[[], object]) -> Work:
    """Run something once and count what it does."""
    with WorkCounter() as counter:
        run()
    return counter.work
