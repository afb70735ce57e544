"""Tensors that layers of one rank share.

In: a layer that was just built, and those that were built before. Called by `stage`.
What layers of several ranks share is kept equal by `shared_tensors`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.split_tensors import here
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import Tie, Workload


def join_ties(workload: Workload, layers: nn.ModuleDict, index: int) -> None:
    """Let a new layer hold what it shares with those that are there already.

    Of all places on this rank the values of the tie's first count.
    """
    new = workload.layers[index].name
    place_of = {layer.name: str(i) for i, layer in enumerate(workload.layers)}
    for tie in workload.ties:
        present = [(n, path) for n, path in tie.places if place_of[n] in layers]
        own = [path for n, path in present if n == new]
        if not own:
            continue
        for path in own:
            check_kind(tie, tensor_in(layers[str(index)], path))
        first_layer, first_path = present[0]
        values = tensor_in(layers[place_of[first_layer]], first_path)
        # What is there may lie in a buffer already, so that is what stays.
        earlier = [(n, path) for n, path in present if n != new]
        shared = values
        if earlier and first_layer == new:
            shared = tensor_in(layers[place_of[earlier[0][0]]], earlier[0][1])
            with torch.no_grad():
                shared.copy_(values)
        for path in own:
            put_in(layers[str(index)], path, shared)


def tied_in(workload: Workload, layer: nn.Module, index: int) -> list[Tensor]:
    """Tensors of a layer that are tied, and no constants."""
    name = workload.layers[index].name
    return [
        here(tensor_in(layer, path))
        for tie in workload.ties
        for owner, path in tie.places
        if owner == name and not tie.constant
    ]


def tensor_in(layer: nn.Module, path: str) -> Tensor:
    """A parameter or buffer of one layer."""
    owner, _, attribute = path.rpartition(".")
    tensor: Tensor = getattr(layer.get_submodule(owner), attribute)
    return tensor


def put_in(layer: nn.Module, path: str, tensor: Tensor) -> None:
    """Put a tensor in the place of another of its kind."""
    owner, _, attribute = path.rpartition(".")
    module = layer.get_submodule(owner)
    if isinstance(tensor, nn.Parameter):
        module.register_parameter(attribute, tensor)
    else:
        setattr(module, attribute, tensor)


def check_kind(tie: Tie, tensor: Tensor) -> None:
    """Refuse a parameter that is declared constant: its gradients would not be added.

    Raises:
        WorkloadError: see above.
    """
    if tie.constant and isinstance(tensor, nn.Parameter):
        layer, name = tie.places[0]
        raise WorkloadError(
            f"the tie of {name!r} in layer {layer!r} is said to be constant, but that "
            "is a parameter: leave constant=True out"
        )
