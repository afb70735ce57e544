"""Parameters and buffers that stand on one rank, with gradients and optimizers.

In: a workload, a captured graph, the nodes of this rank. Out: what it owns. The whole
model is built in the host's memory on every rank, under the seed, so first weights are
those of one process; what stands elsewhere is let go of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer
from plimsoll_trainer.placed.graph import CapturedGraph
from plimsoll_trainer.placed.workload import PlacedWorkload


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnedState:
    """A parameter or buffer on its rank."""

    place: int
    """Among all of the graph."""
    name: str
    node: int
    tensor: Tensor
    is_saved: bool
    """Whether a checkpoint has it: all but buffers that the model makes anew."""
    gradient: Tensor | None
    """That is added to; None: it is not trained."""
    optimizer: LayerOptimizer | None


def owned_states(
    workload: PlacedWorkload,
    graph: CapturedGraph,
    is_here: Callable[[int], bool],
    device: torch.device,
) -> list[OwnedState]:
    """States of the nodes that are here, in the order of the graph."""
    with host_memory():
        model = workload.built()
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    saved = model.state_dict().keys()
    return [
        owned(
            *(workload, graph, place, tensors[state.name], device),
            is_saved=state.name in saved,
        )
        for place, state in enumerate(graph.states)
        if is_here(state.node)
    ]


@torch.no_grad()
def owned(
    workload: PlacedWorkload,
    graph: CapturedGraph,
    place: int,
    first: Tensor,
    device: torch.device,
    *,
    is_saved: bool,
) -> OwnedState:
    """One state with its first value."""
    state = graph.states[place]
    form = graph.nodes[state.node].form
    tensor = torch.empty_strided(
        form.shape, form.stride, dtype=form.dtype, device=device
    )
    tensor.copy_(first)
    gradient, optimizer = None, None
    if state.gradient is not None:
        parameter = nn.Parameter(tensor)
        gradient = parameter.grad = torch.zeros_like(tensor)
        optimizer = LayerOptimizer([parameter], workload.optimizer)
    return OwnedState(
        place=place,
        name=state.name,
        node=state.node,
        tensor=tensor,
        is_saved=is_saved,
        gradient=gradient,
        optimizer=optimizer,
    )
