"""Parameters and buffers that stand on one rank, with gradients and optimizers.

In: a workload, a captured graph, the nodes of this rank. Out: what it owns. Parts of
the model are built one after the other in the host's memory, each under its own seed,
so first weights are those of one process. What stands elsewhere is let go of, and a
part of which nothing is here is not built.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer
from plimsoll_trainer.placed.graph import CapturedGraph, empty
from plimsoll_trainer.placed.workload import Part, PlacedWorkload
from plimsoll_trainer.torch_internals.operators import FakeTensorMode


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
    wanted = {
        state.name: place
        for place, state in enumerate(graph.states)
        if is_here(state.node)
    }
    found: dict[int, OwnedState] = {}
    for part in workload.all_parts:
        with host_memory():
            module = built_for(workload, part, wanted)
        if module is None:
            continue
        saved = module.state_dict().keys()
        for own, tensor in tensors_of(module):
            place = wanted.pop(part.name_of(own) or "", None)
            if place is not None:
                found[place] = owned(
                    workload, graph, place, tensor, device, is_saved=own in saved
                )
    return [found[place] for place in sorted(found)]


def built_for(
    workload: PlacedWorkload, part: Part, wanted: Container[str]
) -> nn.Module | None:
    """A part with its first weights, unless nobody wants any of its tensors."""
    with FakeTensorMode():
        names = [part.name_of(name) for name, _ in tensors_of(workload.build(part))]
    is_wanted = any(name in wanted for name in filter(None, names))
    return workload.build(part) if is_wanted else None


def tensors_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and buffers by each of their names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


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
    tensor = empty(form, device).copy_(first)
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
