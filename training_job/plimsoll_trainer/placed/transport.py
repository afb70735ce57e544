"""Values on their way between the ranks of a placement.

A value is sent as it lies if its numbers have no gaps, in whatever order of dimensions,
and lies on the other side as it did here, for ranks keep values in the strides that
were captured: so operators compute the same there, to the bit. Else the sender makes a
copy without gaps (`Form.packed`), for as long as it is under way, and what a kernel
computes from that may differ in the last bits, as a product of matrices does.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from plimsoll_trainer.engine.world import World
from plimsoll_trainer.errors import LostRankError
from plimsoll_trainer.placed.graph import Form, empty


class Underway(NamedTuple):
    """A send or receive that has begun."""

    work: dist.Work
    memory: Tensor
    """That it reads or writes."""


class Transport(Protocol):
    """Sends and receives of one rank, by node and device of the other side."""

    def send(self, node: int, value: Tensor, peer: int) -> None:
        """Begin to send the value of a node."""
        ...

    def receive(self, node: int, form: Form, peer: int) -> Tensor:
        """Begin to receive a value; its numbers come later."""
        ...

    def end(self, node: int, peer: int) -> None:
        """Wait until a send or receive is over."""
        ...


class GroupTransport:
    """Those of a process group, among the ranks of a replica."""

    def __init__(self, world: World) -> None:
        """Begin with nothing under way."""
        self._world = world
        self._underway: dict[tuple[int, int], Underway] = {}

    def send(self, node: int, value: Tensor, peer: int) -> None:
        """See `Transport`."""
        memory = as_row(value) if Form.of(value).is_dense else packed(value)
        group = self._world.pipeline_group
        work = dist.isend(memory, self._rank(peer), group, tag=node)
        self._begin(node, peer, work, memory)

    def receive(self, node: int, form: Form, peer: int) -> Tensor:
        """See `Transport`."""
        value = memory_for(form, self._world.device)
        memory = as_row(value)
        group = self._world.pipeline_group
        work = dist.irecv(memory, self._rank(peer), group, tag=node)
        self._begin(node, peer, work, memory)
        return value

    def end(self, node: int, peer: int) -> None:
        """See `Transport`."""
        self._underway.pop((node, peer)).work.wait()

    def _begin(
        self, node: int, peer: int, work: dist.Work | None, memory: Tensor
    ) -> None:
        if work is None:
            raise LostRankError(f"rank {peer} is not in the group of this placement")
        self._underway[node, peer] = Underway(work, memory)

    def _rank(self, device: int) -> int:
        """Rank of another device of this replica."""
        return self._world.rank_of(device, self._world.replica, 0)


def as_row(value: Tensor) -> Tensor:
    """Memory of a value that has no gaps, as one row."""
    return value.as_strided((value.numel(),), (1,))


def packed(value: Tensor) -> Tensor:
    """A copy of a value without gaps, as one row."""
    return as_row(memory_for(Form.of(value), value.device).copy_(value))


def memory_for(form: Form, device: torch.device) -> Tensor:
    """Memory for a value that is received."""
    return empty(form.packed, device)
