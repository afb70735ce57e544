"""Counts the bytes of live tensors, whether they have data or not.

A dispatch mode sees every tensor that an operator returns and adds its storage; a
finalizer takes it off when the storage dies. On fake tensors this tells what a device
would hold, in one process, without a device. What kernels allocate inside themselves
stays unseen, unless somebody knows their workspaces. What autograd would do in place
takes no memory here either, though the mode is given a new tensor. Nor does what lies
in the host's memory (`host_memory`).
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from plimsoll_profiler.counting.kernel_workspaces import KernelWorkspaces
from plimsoll_trainer.emulated.device import is_on_host
from plimsoll_trainer.torch_internals import (
    TorchDispatchMode,
    holders_of_a_gradient,
    is_in_place_unseen,
    storage_of,
    tree_iter,
    wait_tensor,
)

CUDA_BLOCK_BYTES = 512
"""CUDA's caching allocator rounds every block up to this."""

DEVICE_OF = torch.ops.prim.device.default


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`current_bytes` and `peak_bytes` of all storages seen while the mode was on."""

    def __init__(
        self, block_bytes: int = 1, workspaces: KernelWorkspaces | None = None
    ) -> None:
        """Count in blocks of `block_bytes`, the allocator's unit."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.block_bytes = block_bytes
        self.workspaces = workspaces
        self.current_bytes = 0
        self.peak_bytes = 0
        self._bytes_of: dict[int, int] = {}
        self._of_gradient = holders_of_a_gradient()

    def add(self, tensor: Tensor) -> None:
        """Count a tensor that existed before, unless it is known."""
        if tensor.device.type == "meta":
            return
        key, storage = storage_of(tensor)
        if key in self._bytes_of:
            return
        size = -(-storage.nbytes() // self.block_bytes) * self.block_bytes
        size = 0 if is_on_host() else size
        self._bytes_of[key] = size
        weakref.finalize(storage, self._drop, key)
        self.current_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)

    def _drop(self, key: int) -> None:
        self.current_bytes -= self._bytes_of.pop(key, 0)

    def reset_peak(self) -> None:
        """Start counting the peak from what is alive now."""
        self.peak_bytes = self.current_bytes

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator and count what it returns."""
        if DTensor in types:  # counted are what it does with the parts that are here
            return NotImplemented
        if func is DEVICE_OF:  # autograd asks at each step, and the way down is long
            return args[0].device
        kwargs = kwargs or {}
        in_place = func is wait_tensor
        in_place = in_place or is_in_place_unseen(func, args, self._of_gradient)
        out = func(*args, **kwargs)
        if in_place:
            self._drop(storage_of(args[0])[0])
        start_bytes = self.current_bytes
        for leaf in tree_iter(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        if self.workspaces is not None and not (in_place or is_on_host()):
            made_bytes = self.current_bytes - start_bytes
            needed = self.workspaces.peak_bytes(func, args, kwargs, out, made_bytes)
            self.peak_bytes = max(self.peak_bytes, start_bytes + needed)
        return out
