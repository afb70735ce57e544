"""Helpers for `Layer.parallelize_sequence`, beside the styles of torch.

Between what is split, each rank of a tensor group has one part of every sequence:

    x, here        [batch, sequence / T, width]     norms, sums, dropout
      gather_input   all parts, then the heads or columns that are here
      rowwise        sums of all ranks, each rank gets its part of the sequence
    y, here        [batch, sequence / T, width]

A parameter that a rank uses on its own part has a gradient that is a part of a sum. Of
a DTensor torch knows that; of a plain one it has to be declared, one way or the other.

In: modules or parameters of a layer. Called by what splits it, and by the engine, which
asks `gradient_is_part`.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from plimsoll_trainer.errors import WorkloadError

SEQUENCE = 1
"""Dimension of what passes between layers: [batch, sequence, ...]."""
PART = "_plimsoll_gradient_is_part"
"""Attribute of a parameter: whether its gradient is to be added up over the group."""


def used_on_parts(*parameters: nn.Parameter) -> None:
    """Declare parameters that each rank uses on its own part of the sequence."""
    for parameter in parameters:
        setattr(parameter, PART, True)


def used_on_whole(*parameters: nn.Parameter) -> None:
    """Declare parameters that every rank uses alike, on whole sequences."""
    for parameter in parameters:
        setattr(parameter, PART, False)


def gradient_is_part(parameter: Tensor) -> bool | None:
    """Whether a gradient is to be added up over the group; None: nobody said so."""
    found: bool | None = getattr(parameter, PART, None)
    return found


def gathered(part: Tensor, mesh: DeviceMesh) -> DTensor:
    """Whole sequences from the part of each rank, for modules that are split.

    All that take one result share a message, and what is kept for the backward pass.
    """
    parts = DTensor.from_local(part, mesh, (Shard(SEQUENCE),), run_check=False)
    return parts.redistribute(placements=(Replicate(),))


def give_part(module: nn.Module, mesh: DeviceMesh) -> None:
    """Let a module give this rank's part of the sequences that it computes alike."""

    def part_of(_: nn.Module, __: object, whole: Tensor) -> Tensor:
        part = whole.chunk(mesh.size(), SEQUENCE)[mesh.get_local_rank()]
        return part.contiguous()

    module.register_forward_hook(part_of)


def gather_input(module: nn.Module, mesh: DeviceMesh) -> None:
    """Let a module have whole sequences as its first argument, which is of parts."""
    name = next(iter(inspect.signature(module.forward).parameters))

    def gather(
        _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if name in kwargs:
            return args, kwargs | {name: gathered(kwargs[name], mesh)}
        return (gathered(args[0], mesh), *args[1:]), kwargs

    module.register_forward_pre_hook(gather, with_kwargs=True)


def drop_out_parts(module: nn.Module, mesh: DeviceMesh) -> None:
    """Let dropout draw for whole sequences and use this rank's part of it.

    So it is that of one process. The mask of whole sequences is there for a moment.

    Raises:
        WorkloadError: the module is no `nn.Dropout`, whose masks are of other shapes.
    """
    if not isinstance(module, nn.Dropout):
        raise WorkloadError(
            f"drop_out_parts is given {type(module).__name__}, but nn.Dropout is "
            "needed: let it drop out single numbers, or leave parallelize_sequence out"
        )

    def drop_out(part: Tensor) -> Tensor:
        if not module.training or module.p == 0:
            return part
        shape = list(part.shape)
        shape[SEQUENCE] *= mesh.size()
        mask = nn.functional.dropout(part.new_ones(shape), module.p)
        own = mask.chunk(mesh.size(), SEQUENCE)[mesh.get_local_rank()]
        return part * own.clone()

    module.forward = drop_out  # type: ignore[assignment, method-assign]
