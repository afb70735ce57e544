"""Gradients and optimizer of one layer, and what a step does with them.

    reduce     adds the gradients of all replicas up
    scale      to a mean, and to a limited norm
    begin      lets gradients go where the optimizer is, for all layers at a time
    step       the optimizer, after which gradients are zero

A replica works on the numbers that it owns: all of them, or one slice of each buffer.
Then it passes on the parameters that it has stepped on. The optimizer is where they
are, or in the host's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plimsoll_trainer.engine.collectives import gather_slices, reduce_slices
from plimsoll_trainer.engine.flat_buffers import FlatBuffer
from plimsoll_trainer.engine.host_link import HostLink
from plimsoll_trainer.engine.host_optimizer import HostMirror, HostOptimizer
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer, scale
from plimsoll_trainer.engine.sharded_optimizer import PieceOf, over_pieces
from plimsoll_trainer.workload import MakeOptimizer


class TrainedLayer:
    """A layer with parameters of its own that are trained."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        buffers: Sequence[FlatBuffer],
        make: MakeOptimizer,
        group: dist.ProcessGroup | None = None,
        *,
        reduces_whole: bool = False,
        link: HostLink | None = None,
        least: torch.dtype = torch.float32,
    ) -> None:
        """Make the optimizer of what is owned here.

        Args:
            parameters: of the layer, in its order.
            buffers: of those that train and belong to it.
            make: their optimizer.
            group: all replicas, where there are several.
            reduces_whole: whether every replica needs all gradients: a tensor of the
                layer has copies on other stages, and replicas there may own other
                pieces of it.
            link: to the host, where the optimizer is to be there.
            least: smallest type that the optimizer steps on.
        """
        self.buffers = buffers
        self._group = group
        self._reduces_whole = reduces_whole
        lying = {id(p) for buffer in buffers for p in buffer.parameters}
        wholes = [p for p in parameters if id(p) in lying]
        order = {id(whole): place for place, whole in enumerate(wholes)}
        mirror = HostMirror(buffers, link) if link is not None else None
        owned = owned_of(buffers) if mirror is None else mirror.owned
        owned.sort(key=lambda found: order[id(found[1].whole)])
        self.places = [place for _, place in owned]
        """Of the optimizer's parameters in those of the layer."""
        if self.is_divided:
            make = over_pieces(make, wholes, self.places)
        stepped = [parameter for parameter, _ in owned]
        self.optimizer: LayerOptimizer | None = None
        """None: all that is owned is padding."""
        if owned and mirror is not None:
            self.optimizer = HostOptimizer(stepped, make, mirror, least)
        elif owned:
            self.optimizer = LayerOptimizer(stepped, make, least)

    @property
    def is_divided(self) -> bool:
        """Whether each replica owns a part."""
        return any(buffer.values is not None for buffer in self.buffers)

    @property
    def own_gradients(self) -> list[Tensor]:
        """Gradients that this replica owns, in one piece of each buffer."""
        return [buffer.own_gradients for buffer in self.buffers]

    def reduce(self) -> None:
        """Add gradients of all replicas up, at least those that are owned here."""
        if self._group is None:
            return
        for buffer in self.buffers:
            if buffer.kept_gradients is not None:
                continue  # each pass has done so
            if buffer.values is None or self._reduces_whole:
                dist.all_reduce(buffer.gradients, group=self._group)
            else:
                reduce_slices(buffer.gradients, buffer.own, self._group)

    def scale(self, factor: float | Tensor) -> None:
        """Multiply what is owned."""
        scale(self.own_gradients, factor)

    def begin(self) -> None:
        """Let gradients go where the optimizer is."""
        if self.optimizer is not None:
            self.optimizer.begin()

    @torch.no_grad()
    def step(self, learning_rate_factor: float) -> None:
        """Step on what `begin` has sent, spread it, and set gradients to zero."""
        if self.optimizer is not None:
            self.optimizer.step(learning_rate_factor)
        for buffer in self.buffers:
            if buffer.values is None or self._group is None:
                continue
            if buffer.kept_values is None:
                gather_slices(buffer.values, buffer.own, self._group)
            if buffer.kept_gradients is None:
                buffer.gradients.zero_()

    @torch.no_grad()
    def leave_out(self) -> None:
        """Set gradients to zero, without a step."""
        for buffer in self.buffers:
            buffer.own_gradients.zero_()
            if buffer.kept_gradients is None:
                buffer.gradients.zero_()

    def make_state(self) -> None:
        """Let the optimizer make its state, without moving a weight.

        A step at learning rate 0 on gradients that are 0, as torch itself does it
        (torch.distributed.checkpoint.state_dict).
        """
        if self.optimizer is not None:
            self.optimizer.begin()
            self.optimizer.step(0.0)

    def read_parameters(self) -> None:
        """Let an optimizer that keeps parameters elsewhere have those that are here."""
        if self.optimizer is not None:
            self.optimizer.read_parameters()

    def state(self) -> Iterator[Tensor]:
        """Yield masters and optimizer state, in one order on every rank."""
        if self.optimizer is None:
            return
        for parameter, master in zip(
            self.optimizer.parameters, self.optimizer.masters, strict=True
        ):
            if master is not parameter:
                yield master.detach()
            for _, value in sorted(self.optimizer.optimizer.state[master].items()):
                if isinstance(value, Tensor):
                    yield value


def owned_of(buffers: Iterable[FlatBuffer]) -> list[tuple[nn.Parameter, PieceOf]]:
    """Parameters or pieces of them that an optimizer is to step on here."""
    return [found for buffer in buffers for found in buffer.owned()]
