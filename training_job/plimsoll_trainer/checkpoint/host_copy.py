"""A copy of a rank's tensors in host memory, made between two steps.

The same memory is used by every save, so a save allocates nothing after the first. On
an emulated device it is left uncounted; for tensors of a GPU it is pinned, which copies
several times as fast.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from plimsoll_trainer.emulated.device import host_memory

Key = TypeVar("Key", bound=Hashable)


class HostCopy:
    """The tensors as they were at one moment; each copy has a storage of its own."""

    def __init__(self, device: torch.device) -> None:
        """Copy from a device."""
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._copies: dict[Hashable, Tensor] = {}

    def take(self, tensors: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        """Copy tensors over earlier copies of the same names, shapes and types.

        Copies of tensors that are not here any more go.
        """
        self._copies = {n: kept for n, kept in self._copies.items() if n in tensors}
        for name, tensor in tensors.items():
            if name not in self._copies:
                with host_memory():
                    self._copies[name] = torch.empty(
                        tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda
                    )
            self._copies[name].copy_(tensor, non_blocking=True)
        if self._is_cuda:
            torch.cuda.synchronize(self._device)
        return {name: self._copies[name] for name in tensors}
