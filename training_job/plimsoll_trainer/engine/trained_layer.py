"""Gradients and optimizer of one layer, and what a step does with them.

    reduce     adds the gradients of all replicas up
    scale      to a mean, and to a limited norm
    step       the optimizer, after which gradients are zero

A replica works on the numbers that it owns: all of them, or one slice of each buffer.
Then it passes on the parameters that it has stepped on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from plimsoll_trainer.engine.collectives import gather_slices, reduce_slices
from plimsoll_trainer.engine.flat_buffers import FlatBuffer
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer, scale
from plimsoll_trainer.engine.sharded_optimizer import over_pieces
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
        """
        self.buffers = buffers
        self._group = group
        self._reduces_whole = reduces_whole
        lying = {id(p) for buffer in buffers for p in buffer.parameters}
        wholes = [p for p in parameters if id(p) in lying]
        order = {id(whole): place for place, whole in enumerate(wholes)}
        owned = [found for buffer in buffers for found in buffer.owned()]
        owned.sort(key=lambda found: order[id(found[1].whole)])
        self.places = [place for _, place in owned]
        """Of the optimizer's parameters in those of the layer."""
        if self.is_divided:
            make = over_pieces(make, wholes, self.places)
        self.optimizer = LayerOptimizer([p for p, _ in owned], make) if owned else None
        """None: all that is owned is padding."""

    @property
    def is_divided(self) -> bool:
        """Whether each replica owns a part."""
        return any(buffer.values is not None for buffer in self.buffers)

    @property
    def own_gradients(self) -> list[Tensor]:
        """Gradients that this replica owns, in one piece of each buffer."""
        return [buffer.gradients[buffer.own] for buffer in self.buffers]

    def reduce(self) -> None:
        """Add gradients of all replicas up, at least those that are owned here."""
        if self._group is None:
            return
        for buffer in self.buffers:
            if buffer.values is None or self._reduces_whole:
                dist.all_reduce(buffer.gradients, group=self._group)
            else:
                reduce_slices(buffer.gradients, buffer.own, self._group)

    def scale(self, factor: float | Tensor) -> None:
        """Multiply what is owned."""
        scale(self.own_gradients, factor)

    @torch.no_grad()
    def step(self, learning_rate_factor: float) -> None:
        """Step on what is owned, spread it, and set gradients to zero."""
        if self.optimizer is not None:
            self.optimizer.step(learning_rate_factor)
        for buffer in self.buffers:
            if buffer.values is not None and self._group is not None:
                gather_slices(buffer.values, buffer.own, self._group)
                buffer.gradients.zero_()
