"""Counts the bytes of live tensors, whether they have data or not.

A dispatch mode sees every tensor that an operator returns and adds its storage; a
finalizer takes it off when the storage dies. On fake tensors this tells what a device
would hold, in one process, without a device. A storage that is resized counts as large
as it is then. What kernels allocate inside themselves stays unseen, unless somebody
knows their workspaces. What autograd would do in place takes no memory here either,
though the mode is given a new tensor. Nor does what lies in the host's memory
(`host_memory`).

One tensor may be watched. `held_peak_bytes` is the peak that there would be if it had
not died: the same pass tells both.
"""

from __future__ import annotations

import weakref
from typing import Any, Self

import torch
from torch import Tensor, UntypedStorage
from torch.distributed.tensor import DTensor

from plimsoll_profiler.counting.kernel_workspaces import KernelWorkspaces
from plimsoll_trainer.emulated.device import is_on_host
from plimsoll_trainer.torch_internals.in_place import (
    holders_of_a_gradient,
    is_in_place_unseen,
)
from plimsoll_trainer.torch_internals.operators import (
    TorchDispatchMode,
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
        self.held_peak_bytes = 0
        self._watched: int | None = None
        self._gone_bytes = 0
        self._bytes_of: dict[int, int] = {}
        self._of_gradient = holders_of_a_gradient()

    def add(self, tensor: Tensor) -> None:
        """Count a tensor that existed before, unless it is known."""
        if tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key = id(storage)  # torch gives the same object for as long as it lives
        if key not in self._bytes_of:
            weakref.finalize(storage, self._drop, key)
            self._set(key, 0 if is_on_host() else self._bytes_in_blocks(storage))

    def _bytes_in_blocks(self, storage: UntypedStorage) -> int:
        """Bytes that a storage takes of a device."""
        return -(-storage.nbytes() // self.block_bytes) * self.block_bytes

    def _set(self, key: int, num_bytes: int) -> None:
        """Let a storage count as so large from now on."""
        self.current_bytes += num_bytes - self._bytes_of.get(key, 0)
        self._bytes_of[key] = num_bytes
        self._reach(self.current_bytes)

    def _keep(self, out: Any, more_bytes: int) -> None:
        """Count more of what an operator returns than its numbers."""
        if more_bytes > 0:
            first = next(leaf for leaf in tree_iter(out) if isinstance(leaf, Tensor))
            key = id(first.untyped_storage())
            self._set(key, self._bytes_of[key] + more_bytes)

    def _reach(self, num_bytes: int) -> None:
        """So much is alive, for a moment at least."""
        self.peak_bytes = max(self.peak_bytes, num_bytes)
        self.held_peak_bytes = max(self.held_peak_bytes, num_bytes + self._gone_bytes)

    def watch(self, tensor: Tensor) -> None:
        """From here on, count also as if this tensor did not die."""
        self._watched, self._gone_bytes = id(tensor.untyped_storage()), 0
        self.reset_peak()

    def __enter__(self) -> Self:
        """Count from now on, resized storages as well, which no operator tells of."""
        super().__enter__()  # type: ignore[no-untyped-call]
        resize = self._resize = torch.UntypedStorage.resize_

        def counted(storage: Any, size: int) -> Any:
            found = resize(storage, size)
            if self._bytes_of.get(key := id(storage)) is not None:
                self._set(key, self._bytes_in_blocks(storage))
            return found

        torch.UntypedStorage.resize_ = counted  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *error: object) -> None:
        """Count no more."""
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _drop(self, key: int) -> None:
        num_bytes = self._bytes_of.pop(key, 0)
        self.current_bytes -= num_bytes
        if key == self._watched:
            self._watched, self._gone_bytes = None, num_bytes

    def reset_peak(self) -> None:
        """Start counting the peaks from what is alive now."""
        self.peak_bytes = self.current_bytes
        self.held_peak_bytes = self.current_bytes + self._gone_bytes

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
            self._drop(id(args[0].untyped_storage()))
        start_bytes = self.current_bytes
        for leaf in tree_iter(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        if self.workspaces is not None and not (in_place or is_on_host()):
            made_bytes = self.current_bytes - start_bytes
            found = self.workspaces.bytes_of(func, args, kwargs, out, made_bytes)
            self._reach(start_bytes + found.peak)
            self._keep(out, found.kept - made_bytes)
        return out
