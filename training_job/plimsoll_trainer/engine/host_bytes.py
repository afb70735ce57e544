"""Bytes of the host that a rank will take there, before anything is built.

Of offloaded activations as many as are planned. Of optimizers, for each number that the
replica owns, in parts and slices that are filled up to 16:

    parameter, in its type         pinned beside a GPU
    sum of gradients, in its type  pinned beside a GPU
    master in fp32                 where parameters are of another type, unless none
                                   are wanted
    optimizer state                as a step of the optimizer shows

and in a step, of the largest layer, gradients in the type that is stepped on where sums
are of another.
What a parameter has once, such as a count of steps, is left out.

In: the workload and a stage. Out: a `HostBytes`. Called where a rank starts, so that
one that its machine has no room for ends before it takes any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.distributed.device_mesh import DeviceMesh

from plimsoll_trainer.engine.elementwise import bytes_per_number
from plimsoll_trainer.engine.flat_buffers import FlatBuffer, Share
from plimsoll_trainer.engine.gradients import rounded
from plimsoll_trainer.engine.stage import StageSlice, build_stage
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from plimsoll_trainer.workload import Workload

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostBytes:
    """Bytes of tensors on the host."""

    held: int = 0
    """Between two steps."""
    on_top: int = 0
    """In a step."""
    pinned: tuple[int, ...] = ()
    """Of those that are held, each piece that is copied from and to the device."""

    @property
    def needed(self) -> int:
        """Most bytes that are taken at a time."""
        return self.held + self.on_top


def host_bytes(
    workload: Workload,
    part: StageSlice,
    share: Share,
    mesh: DeviceMesh | None = None,
) -> HostBytes:
    """Bytes that a stage takes of the host, on one of its replicas.

    Where layers are split over a mesh, on this rank of it.
    """
    offloaded = part.offloaded_bytes
    pinned = (offloaded,) if offloaded else ()
    if not part.steps_on_host:
        return HostBytes(held=offloaded, pinned=pinned)
    with FakeTensorMode():
        stage = build_stage(workload, part, CPU, share=share, mesh=mesh)
        layers = stage.flat.values()
        found = [(buffer, *owned_numbers(buffer)) for one in layers for buffer in one]
        least = workload.stepped_dtype
        cast = [sum(cast_bytes(one, least) for one in buffers) for buffers in layers]
    kept = {
        dtype: bytes_per_number(workload.optimizer, dtype, CPU, workload.stepped_dtype)
        for dtype in {dtype for _, numbers, _ in found for dtype in numbers}
    }
    blocks = [size for buffer, _, parts in found for size in blocks_of(buffer, parts)]
    states = (kept[of] * n for _, numbers, _ in found for of, n in numbers.items())
    return HostBytes(
        held=sum(blocks) + sum(states) + offloaded,
        on_top=max(cast, default=0),
        pinned=(*blocks, *pinned),
    )


Numbers = dict[torch.dtype, int]
"""By the type of the parameters that they belong to."""


def owned_numbers(buffer: FlatBuffer) -> tuple[Numbers, Numbers]:
    """Numbers of a buffer that are owned here, and with their parts filled up."""
    numbers: Numbers = {}
    parts: Numbers = {}
    for parameter, _ in buffer.owned():
        dtype, count = parameter.dtype, parameter.numel()
        numbers[dtype] = numbers.get(dtype, 0) + count
        parts[dtype] = parts.get(dtype, 0) + rounded(count)
    return numbers, parts


def blocks_of(buffer: FlatBuffer, parts: Numbers) -> Iterable[int]:
    """Yield the bytes of each piece of memory that mirrors a buffer.

    Padding alone is not mirrored.
    """
    if not parts:
        return
    gradients = buffer.gradients
    yield gradients.numel() // buffer.share.num_replicas * gradients.element_size()
    yield from (count * dtype.itemsize for dtype, count in parts.items())


def cast_bytes(buffer: FlatBuffer, least: torch.dtype) -> int:
    """Bytes of the owned gradients in types of a step, if summed in others.

    `least` is the smallest type that the optimizer steps on.
    """
    numbers, _ = owned_numbers(buffer)
    stepped = ((max(dtype.itemsize, least.itemsize), n) for dtype, n in numbers.items())
    sums = buffer.gradients.dtype.itemsize
    return sum(size * count for size, count in stepped if size != sums)
