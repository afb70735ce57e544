"""Layout of a layer's trained parameters and gradients, whole or divided by replicas.

Every buffer has each parameter's part at a multiple of 16 numbers. Where replicas
divide the optimizer state, parameters lie like their gradients, and what replica d owns
is one slice of both (D = 3 replicas here):

    values     [ weight ........ | norm . | tied ...... | 0 ]     n' numbers
    gradients  [ weight ........ | norm . | tied ...... | 0 ]
                 own of 0    :    of 1     :      of 2          n' / D each

n' is a multiple of 16 D. A layer that has less than 16 D numbers in any of its buffers
is not worth it, and stays whole on each replica. Parameters that other layers share
come last, so that the numbers before them are the same under every plan.

Where replicas divide gradients, or parameters as well, the slice lies in memory of its
own, and the buffer has memory while the layer is at work (`gathered_layers`). A layer
that shares parameters with others, or has several buffers, divides optimizer state
alone.

In: the trained parameters that belong to a layer. Out: its buffers. Called by `stage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plimsoll_planner.records.engine import Sharding
from plimsoll_trainer.engine.gradients import (
    ALIGNMENT,
    attach,
    attach_buffer,
    by_type_of_sums,
    gradient_of,
    parts_of,
    rounded,
    sizes_of,
)
from plimsoll_trainer.engine.sharded_optimizer import PieceOf
from plimsoll_trainer.engine.split_tensors import move


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Replica that asks, of all that divide optimizer state."""

    replica: int = 0
    num_replicas: int = 1
    """1: nothing is divided."""
    level: Sharding = Sharding.OPTIMIZER
    """What is divided."""
    group: dist.ProcessGroup | None = None
    """All replicas; None: nothing is computed."""
    parts: dist.ProcessGroup | None = None
    """Ranks that share each layer, if there are several."""


WHOLE = Share()
GATHERED = (Sharding.GRADIENTS, Sharding.PARAMETERS)
"""Levels at which a buffer has no memory between two passes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatBuffer:
    """Parameters of one layer, and their gradients in one piece of memory."""

    parameters: tuple[nn.Parameter, ...]
    num_alone: int
    """Of the parameters, those that no other layer shares; they come first."""
    gradients: Tensor
    values: Tensor | None = None
    """Of the parameters, in the layout of the gradients; None: where they were made."""
    kept_gradients: Tensor | None = None
    """What this replica owns, added up over passes, if the gradients do not stay."""
    kept_values: Tensor | None = None
    """What this replica owns, if the values do not stay."""
    share: Share

    @property
    def own(self) -> slice:
        """Numbers that this replica steps on."""
        size = self.gradients.numel() // self.share.num_replicas
        return slice(self.share.replica * size, (self.share.replica + 1) * size)

    @property
    def own_gradients(self) -> Tensor:
        """Gradients of the numbers that this replica steps on."""
        if self.kept_gradients is not None:
            return self.kept_gradients
        return self.gradients[self.own]

    @property
    def own_values(self) -> Tensor | None:
        """Those numbers; None: parameters lie where they were made."""
        if self.kept_values is not None or self.values is None:
            return self.kept_values
        return self.values[self.own]

    def of_replica(self, replica: int) -> FlatBuffer:
        """The same as another replica sees it; one that is whole stays whole."""
        if self.values is None:
            return self
        return replace(self, share=replace(self.share, replica=replica))

    def pieces(self) -> Iterator[tuple[Tensor, PieceOf]]:
        """Yield the gradients that this replica owns of each parameter."""
        own, mine, start = self.own, self.own_gradients, 0
        for parameter, size in zip(
            self.parameters, sizes_of(self.parameters), strict=True
        ):
            first = max(own.start, start)
            end = min(own.stop, start + parameter.numel())
            if first < end:
                place = PieceOf(whole=parameter, first=first - start, end=end - start)
                yield mine[first - own.start : end - own.start], place
            start += size

    def owned(self) -> Iterator[tuple[nn.Parameter, PieceOf]]:
        """Yield what an optimizer is to step on here, with its gradient attached."""
        values = self.own_values
        if values is None:
            for parameter in self.parameters:
                yield parameter, PieceOf(whole=parameter, end=parameter.numel())
            return
        for gradient, place in self.pieces():
            start = gradient.storage_offset() - self.own_gradients.storage_offset()
            piece = nn.Parameter(values[start : start + gradient.numel()])
            attach(piece, gradient)
            yield piece, place

    def own_alone(self) -> Tensor:
        """Gradients that this replica owns, of the parameters that nobody shares."""
        end = sum(sizes_of(self.parameters[: self.num_alone]))
        return self.own_gradients[: max(end - self.own.start, 0)]

    def own_shared(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield shared parameters, with the gradients that this replica owns."""
        yield from self._owned_of(self.parameters[self.num_alone :])

    def alone(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield parameters that nobody shares likewise."""
        yield from self._owned_of(self.parameters[: self.num_alone])

    def _owned_of(
        self, parameters: Iterable[Tensor]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield some parameters, with the gradients that this replica owns."""
        wanted = {id(parameter) for parameter in parameters}
        for gradient, place in self.pieces():
            if id(place.whole) in wanted:
                yield place.whole, gradient


def num_numbers(parameters: Iterable[nn.Parameter]) -> int:
    """Numbers of the trained ones among parameters, each rounded up to its part."""
    return sum(sizes_of(p for p in parameters if p.requires_grad))


def lay_out(
    parameters: Iterable[nn.Parameter],
    shared: Iterable[Tensor],
    sums: torch.dtype,
    share: Share,
) -> list[FlatBuffer]:
    """Give a layer's parameters gradients at zero, and divide them if that is worth it.

    Args:
        parameters: of one layer; those that are frozen or have a gradient stay as they
            are, for these belong to an earlier layer.
        shared: those that other layers hold as well.
        sums: type to add gradients up in.
        share: of this replica.
    """
    shared = list(shared)
    last = {id(tensor) for tensor in shared}
    own = [p for p in parameters if p.requires_grad and gradient_of(p) is None]
    own.sort(key=lambda p: id(p) in last)
    if share.num_replicas > 1 and is_divisible(own, share.num_replicas):
        groups, divides = by_type(own), True
    else:
        groups, divides = list(by_type_of_sums(own, sums).values()), False
    buffers = [
        FlatBuffer(
            parameters=tuple(group),
            num_alone=sum(id(p) not in last for p in group),
            values=move_together(group, share.num_replicas) if divides else None,
            gradients=attach_buffer(
                group,
                torch.promote_types(group[0].dtype, sums),
                ALIGNMENT * (share.num_replicas if divides else 1),
            ),
            share=share if divides else WHOLE,
        )
        for group in groups
    ]
    if divides and not shared and len(buffers) == 1:
        return [sliced(buffer) for buffer in buffers]
    return buffers


def sliced(buffer: FlatBuffer) -> FlatBuffer:
    """The same with what stays of it in memory of its own, by the level of its share.

    Numbers that other replicas own are let go of.
    """
    level = buffer.share.level
    if level not in GATHERED or buffer.values is None:
        return buffer
    kept_gradients = buffer.gradients[buffer.own].clone()
    let_go(buffer.gradients)
    if level is Sharding.GRADIENTS:
        return replace(buffer, kept_gradients=kept_gradients)
    kept_values = buffer.values[buffer.own].clone()
    let_go(buffer.values)
    return replace(buffer, kept_gradients=kept_gradients, kept_values=kept_values)


def let_go(buffer: Tensor) -> None:
    """Let go of a buffer's memory; it and its parts keep their shapes."""
    buffer.untyped_storage().resize_(0)


def take_memory(buffer: Tensor) -> None:
    """Give a buffer memory, of any contents."""
    buffer.untyped_storage().resize_(buffer.nbytes)


def is_divisible(parameters: Sequence[nn.Parameter], num_replicas: int) -> bool:
    """Whether each replica would own a whole vector of every type of number."""
    least = ALIGNMENT * num_replicas
    return all(num_numbers(group) >= least for group in by_type(parameters))


def by_type(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Parameters of each type; their gradients are then added up in one type, too."""
    groups: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(parameter.dtype, []).append(parameter)
    return list(groups.values())


@torch.no_grad()
def move_together(parameters: Sequence[nn.Parameter], num_replicas: int) -> Tensor:
    """Move parameters into one buffer, which is returned; they stay what they are."""
    size = rounded(sum(sizes_of(parameters)), ALIGNMENT * num_replicas)
    values = torch.zeros(size, dtype=parameters[0].dtype, device=parameters[0].device)
    for parameter, own in zip(parameters, parts_of(values, parameters), strict=True):
        own.copy_(parameter)
        move(parameter, own)
    return values
