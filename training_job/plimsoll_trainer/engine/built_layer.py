"""One layer of a rank: the module with its first weights, its parameters laid out.

In: a workload, the index of a layer, the layers that the rank has already. Out: that
layer as a plan's replica and part of a tensor group hold it. Called by `stage` at the
start, by `migration` for layers that come later, and by the profiler.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from plimsoll_planner.records.engine import Sharding
from plimsoll_trainer.engine.autocast import run_in_autocast
from plimsoll_trainer.engine.flat_buffers import FlatBuffer, Share, lay_out
from plimsoll_trainer.engine.split_tensors import (
    declare_gradients,
    here,
    parameters_here,
)
from plimsoll_trainer.engine.tensor_sums import Sum, sums_of_parameters
from plimsoll_trainer.engine.tied_tensors import join_ties, tied_in
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.random_keys import random_key, seed_process
from plimsoll_trainer.torch_internals.operators import convertible
from plimsoll_trainer.workload import Layer, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltLayer:
    """Parameters of one layer, as this replica has them."""

    flat: list[FlatBuffer]
    """Those that train and that no earlier layer of the rank has."""
    sums: dict[str, Sum]
    """Of all as they were built, by name, if they are whole only while at work."""
    held: tuple[int, int]
    """`held_by` the layer as it was built."""


def held_by(layer: nn.Module) -> tuple[int, int]:
    """Number of parameters and buffers of a layer that are here, and their bytes."""
    tensors = [here(one) for one in (*layer.parameters(), *layer.buffers())]
    return len(tensors), sum(one.nbytes for one in tensors)


def build_trained(
    workload: Workload,
    index: int,
    layers: nn.ModuleDict,
    device: torch.device,
    share: Share,
    mesh: DeviceMesh | None = None,
    *,
    sequence_parallel: bool = False,
) -> BuiltLayer:
    """Build one layer and add it to those that are there, with gradients at zero."""
    is_sequence = sequence_parallel
    layer = build_layer(workload, index, device, mesh, sequence_parallel=is_sequence)
    layers[str(index)] = layer
    join_ties(workload, layers, index)
    tied = tied_in(workload, layer, index)
    sums: dict[str, Sum] = {}
    if share.level is Sharding.PARAMETERS and share.group and not tied:
        sums = sums_of_parameters(layer, device)
    own = parameters_here(layer)
    flat = lay_out(own, tied, workload.gradient_dtype, share)
    return BuiltLayer(flat=flat, sums=sums, held=held_by(layer))


def build_layer(
    workload: Workload,
    index: int,
    device: torch.device,
    mesh: DeviceMesh | None = None,
    *,
    sequence_parallel: bool = False,
) -> nn.Module:
    """Build one layer with the weights that it has under every plan.

    Of a layer that is split over a mesh the part of this rank is left, and of what
    passes through it this rank's part of the sequence if that is split as well.

    Raises:
        WorkloadError: its factory gives something else, or what splits the sequence
            leaves open which gradients are to be added up.
    """
    layer: Layer = workload.layers[index]
    seed_process(random_key(workload.seed, index))
    before = torch.get_default_dtype()
    torch.set_default_dtype(workload.dtype)
    try:
        with device, convertible():
            module: object = layer.factory()
            if isinstance(module, nn.Module) and workload.autocast_dtype is not None:
                run_in_autocast(module, device.type, workload.autocast_dtype)
    finally:
        torch.set_default_dtype(before)
    if not isinstance(module, nn.Module):
        raise WorkloadError(
            f"the factory of layer {layer.name!r} gives {type(module).__name__}, but "
            "an nn.Module is needed: return one"
        )
    split = layer.parallelize_sequence if sequence_parallel else layer.parallelize
    if mesh is not None and split is not None:
        trained = {name: one.requires_grad for name, one in module.named_parameters()}
        split(module, mesh)
        for name, one in module.named_parameters():  # styles of torch make new ones
            one.requires_grad = trained.get(name, one.requires_grad)
        if sequence_parallel:
            declare_gradients(layer.name, module)
    return module.train()
