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

In: the trained parameters that belong to a layer. Out: its buffers. Called by `stage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

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


WHOLE = Share()


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatBuffer:
    """Parameters of one layer, and their gradients in one piece of memory."""

    parameters: tuple[nn.Parameter, ...]
    num_alone: int
    """Of the parameters, those that no other layer shares; they come first."""
    gradients: Tensor
    values: Tensor | None = None
    """Of the parameters, in the layout of the gradients; None: where they were made."""
    share: Share

    @property
    def own(self) -> slice:
        """Numbers that this replica steps on."""
        size = self.gradients.numel() // self.share.num_replicas
        return slice(self.share.replica * size, (self.share.replica + 1) * size)

    def of_replica(self, replica: int) -> FlatBuffer:
        """The same as another replica sees it; one that is whole stays whole."""
        if self.values is None:
            return self
        return replace(self, share=replace(self.share, replica=replica))

    def pieces(self) -> Iterator[tuple[Tensor, PieceOf]]:
        """Yield the gradients that this replica owns of each parameter."""
        own, start = self.own, 0
        for parameter, size in zip(
            self.parameters, sizes_of(self.parameters), strict=True
        ):
            first = max(own.start, start)
            end = min(own.stop, start + parameter.numel())
            if first < end:
                place = PieceOf(whole=parameter, first=first - start, end=end - start)
                yield self.gradients[first:end], place
            start += size

    def owned(self) -> Iterator[tuple[nn.Parameter, PieceOf]]:
        """Yield what an optimizer is to step on here, with its gradient attached."""
        if self.values is None:
            for parameter in self.parameters:
                yield parameter, PieceOf(whole=parameter, end=parameter.numel())
            return
        for gradient, place in self.pieces():
            start = gradient.storage_offset()
            piece = nn.Parameter(self.values[start : start + gradient.numel()])
            attach(piece, gradient)
            yield piece, place

    def own_alone(self) -> Tensor:
        """Gradients that this replica owns, of the parameters that nobody shares."""
        end = sum(sizes_of(self.parameters[: self.num_alone]))
        return self.gradients[: min(end, self.own.stop)][self.own.start :]

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
    last = {id(tensor) for tensor in shared}
    own = [p for p in parameters if p.requires_grad and gradient_of(p) is None]
    own.sort(key=lambda p: id(p) in last)
    if share.num_replicas > 1 and is_divisible(own, share.num_replicas):
        groups, divides = by_type(own), True
    else:
        groups, divides = list(by_type_of_sums(own, sums).values()), False
    return [
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
