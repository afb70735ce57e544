"""Exchange of a buffer of which every replica owns one slice, without memory on top.

    NCCL    reduce-scatter and all-gather, in place: a slice of the buffer is the other
            end, and (D - 1) / D of its bytes go each way
    gloo    all-reduce, and one broadcast of each slice: its reduce-scatter and
            all-gather take a second buffer from torch's allocator

Numbers that a replica does not own are worthless after `reduce_slices`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch.distributed as dist
from torch import Tensor, nn

from plimsoll_trainer.engine.gradients import gradient_of
from plimsoll_trainer.engine.split_tensors import is_part_of_sum


def add_parts(
    parameters: Iterable[nn.Parameter], group: dist.ProcessGroup | None
) -> None:
    """Add gradients up, in place, that each rank of a tensor group has a part of."""
    for parameter in filter(is_part_of_sum, parameters):
        if (gradient := gradient_of(parameter)) is not None:
            dist.all_reduce(gradient, group=group)


def reduce_slices(buffer: Tensor, own: slice, group: dist.ProcessGroup) -> None:
    """Add the buffers of all replicas up, each slice on its owner."""
    if goes_in_place(group):
        dist.reduce_scatter_tensor(buffer[own], buffer, group=group)
    else:
        dist.all_reduce(buffer, group=group)


def gather_slices(buffer: Tensor, own: slice, group: dist.ProcessGroup) -> None:
    """Give every replica the slices of all owners."""
    if goes_in_place(group):
        dist.all_gather_into_tensor(buffer, buffer[own], group=group)
        return
    slices = buffer.view(group.size(), -1)
    for replica in range(group.size()):
        dist.broadcast(slices[replica], group=group, group_src=replica)


def goes_in_place(group: dist.ProcessGroup) -> bool:
    """Whether a slice of a buffer may be the other end of an operation on it."""
    return dist.get_backend(group) != "gloo"
