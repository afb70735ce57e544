"""Activations of a layer in the memory of its machine, from forward to backward.

    forward    layer: saves a, b, c       | next layer      copies end with the layer
    link              a     b     c
    backward          needs c | needs b | needs a           copies come one ahead
    link       c        b         a

A layer that recomputes saves its input, any other one what autograd keeps for it.
Parameters, buffers and what is too small for a copy stay on the device. A storage is
copied once, however many tensors of the layer lie in it; but parts of it that torch
writes to one after the other, as gates of a GRU cell, are copied one by one. Copies run
beside what the device computes (`host_link`) and are exact, so a layer computes the
same bits.

In: a layer at work. Called by `stage` and by the profiler, around its forward pass.
Source: the swap of vPipe (Zhao et al., TPDS 2022).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from plimsoll_trainer.engine.host_link import HostLink, Wait, nothing
from plimsoll_trainer.engine.split_tensors import here
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.operators import (
    is_written_part,
    num_writes,
    storage_of,
)

LEAST_BYTES = 1024
"""Of a storage that is copied; to copy a smaller one takes longer than it spares."""


class HostPool:
    """Memory of the host that offloaded layers use in turn."""

    def __init__(self, link: HostLink) -> None:
        """Begin with none."""
        self.link = link
        self.num_bytes = 0
        """Of all that was made so far."""
        self._free: dict[int, list[Tensor]] = defaultdict(list)

    def acquire(self, num_bytes: int) -> Tensor:
        """Memory of so many bytes."""
        if free := self._free[num_bytes]:
            return free.pop()
        self.num_bytes += num_bytes
        return self.link.empty(num_bytes, torch.uint8)

    def release(self, memory: Tensor) -> None:
        """Let others have it."""
        self._free[memory.numel()].append(memory)


class Piece:
    """One storage, or part of it, which is on the host between the passes."""

    def __init__(
        self, saved: Tensor, memory: Tensor, pool: HostPool, before: Piece | None
    ) -> None:
        """Begin a copy.

        Args:
            saved: a tensor in what is copied.
            memory: all bytes of that, on the device.
            pool: that the copy goes to.
            before: that was saved last.
        """
        self._device = saved.device
        self._on_device: Tensor | None = memory
        # The tensor itself: its storage is a key for as long as it lives.
        self._saved: Tensor | None = saved
        self._writes = num_writes(saved)
        self._pool, self._before = pool, before
        self._wait: Wait = nothing
        self._on_host = pool.acquire(self._on_device.numel())
        self._wait = pool.link.start(self._on_host, self._on_device)
        self.num_uses = 0
        """Tensors in it that the backward pass has yet to ask for."""

    def end_forward(self) -> None:
        """Let go of the device's memory once it is copied.

        Raises:
            WorkloadError: it was written to meanwhile.
        """
        saved = self._saved
        if saved is not None and num_writes(saved) != self._writes:
            raise WorkloadError(
                "a layer writes in place to what its backward pass needs, a tensor of "
                f"shape {list(saved.shape)}: let it make a new one"
            )
        self.end_copy()
        self._on_device = None

    def forget(self) -> None:
        """Let go of what was saved."""
        self._saved = None

    def end_copy(self) -> None:
        """Let the device wait for a copy that has begun."""
        wait, self._wait = self._wait, nothing
        wait()

    def fetch(self) -> Tensor:
        """Memory on the device, into which the copy back has begun."""
        found = self._on_device
        if found is None:
            found = torch.empty_like(self._on_host, device=self._device)
            self._on_device = found
            self._wait = self._pool.link.start(found, self._on_host)
        return found

    def use(self) -> Tensor:
        """All that lies in it, on the device; what was saved before begins to come."""
        found = self.fetch()
        if self._before is not None and self._before.num_uses:
            self._before.fetch()
        self.end_copy()
        self.num_uses = max(self.num_uses - 1, 0)
        if not self.num_uses:
            self._on_device = None
        return found

    def __del__(self) -> None:
        """Give the memory of the host back once a copy that nobody used has ended."""
        self.end_copy()
        self._pool.release(self._on_host)


def all_of(tensor: Tensor) -> Tensor:
    """All bytes of the storage that a tensor lies in, in the same memory."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((count,), (1,), 0).view(torch.uint8)


def numbers_of(part: Tensor) -> Tensor:
    """Bytes of a tensor's own numbers, one behind the other, in memory of their own."""
    return (
        part.detach()
        .clone(memory_format=torch.contiguous_format)
        .view(-1)
        .view(torch.uint8)
    )


@dataclass(frozen=True, slots=True)
class Packed:
    """A tensor whose storage is on the host."""

    piece: Piece
    view: Callable[[Tensor], Tensor]
    """Makes it of all that lies in its storage."""


class SavedTensors:
    """Tensors that one layer saves in one micro-batch."""

    def __init__(
        self, layer: nn.Module, pool: HostPool, taken: Sequence[Tensor] = ()
    ) -> None:
        """Begin with nothing; what the layer has for good stays on the device.

        So do carried values that it takes, which the engine holds there anyway.
        """
        self._pool = pool
        lasting = (*layer.parameters(), *layer.buffers(), *taken)
        self._lasting = {storage_of(here(tensor))[0] for tensor in lasting}
        self._pieces: dict[Hashable, Piece] = {}

    @torch.no_grad()
    def pack(self, tensor: Tensor) -> Packed | Tensor:
        """Copy what a tensor lies in, unless it stays."""
        part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        key, storage = storage_of(part)
        stays = key in self._lasting or storage.nbytes() < LEAST_BYTES
        if stays or not is_plain(part):
            return out_of_graph(tensor)
        if is_written_part(part):
            found = (key, *place_of(part), num_writes(part))
            piece = self._piece(found, part, numbers_of)
            return Packed(piece, view_like(tensor, part, like_part))
        return Packed(self._piece(key, part, all_of), view_like(tensor, part, in_whole))

    def _piece(
        self, key: Hashable, part: Tensor, memory_of: Callable[[Tensor], Tensor]
    ) -> Piece:
        """The piece that a tensor is used from once more."""
        if key not in self._pieces:
            before = next(reversed(self._pieces.values()), None)
            self._pieces[key] = Piece(part, memory_of(part), self._pool, before)
        piece = self._pieces[key]
        piece.num_uses += 1
        return piece

    @staticmethod
    @torch.no_grad()
    def unpack(packed: Packed | Tensor) -> Tensor:
        """The tensor, on the device."""
        if isinstance(packed, Tensor):
            return packed
        return packed.view(packed.piece.use())

    def forget(self) -> None:
        """Let go of tensors of the graph, which holds the pieces."""
        for piece in self._pieces.values():
            piece.forget()

    def end_forward(self) -> None:
        """Let go of the device's memory; raises what `Piece.end_forward` raises."""
        for piece in self._pieces.values():
            piece.end_forward()


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is the numbers of its memory, which are whole ones of its type.

    A conjugate is made of them when it is read.
    """
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        return False
    return tensor.untyped_storage().nbytes() % tensor.element_size() == 0


def out_of_graph(tensor: Tensor) -> Tensor:
    """The same memory; a tensor of the graph that the graph holds never goes."""
    return tensor if tensor.grad_fn is None else tensor.detach()


Place = tuple[tuple[int, ...], tuple[int, ...], int]
"""Size, strides and offset of a tensor in its storage."""
Make = Callable[[Tensor, Place], Tensor]


def place_of(part: Tensor) -> Place:
    """Place of a tensor in its storage."""
    return tuple(part.size()), part.stride(), int(part.storage_offset())


def in_whole(memory: Tensor, place: Place) -> Tensor:
    """The tensor in a copy of its storage."""
    return memory.as_strided(*place)


def like_part(memory: Tensor, place: Place) -> Tensor:
    """A tensor of these numbers alone, with the gaps that it had."""
    size, stride, _ = place
    made = torch.empty_strided(size, stride, dtype=memory.dtype, device=memory.device)
    return made.copy_(memory.view(size))


def view_like(tensor: Tensor, part: Tensor, make: Make) -> Callable[[Tensor], Tensor]:
    """Makes of bytes in a piece the tensor of which a part, or all, is in it."""
    dtype, bytes_each, place = part.dtype, part.element_size(), place_of(part)

    def view(memory: Tensor) -> Tensor:
        whole = memory.numel() // bytes_each * bytes_each
        return make(memory[:whole].view(dtype), place)

    if not isinstance(tensor, DTensor):
        return view
    mesh, placements = tensor.device_mesh, tensor.placements
    whole_size, whole_stride = tensor.size(), tensor.stride()
    return lambda memory: DTensor.from_local(
        view(memory),
        mesh,
        placements,
        run_check=False,
        shape=whole_size,
        stride=whole_stride,
    )


@contextmanager
def saved_on_host(
    layer: nn.Module, pool: HostPool, taken: Sequence[Tensor] = ()
) -> Iterator[None]:
    """Within it, the forward pass of a layer saves in the memory of the host."""
    saved = SavedTensors(layer, pool, taken)
    try:
        with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
            yield
        saved.end_forward()
    finally:
        saved.forget()
