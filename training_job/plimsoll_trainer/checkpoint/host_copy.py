"""A copy of a rank's tensors in host memory, made between two steps.

One flat buffer, used again by every save, so that a save allocates nothing after the
first. On an emulated device the buffer comes from numpy, whose memory is the host's and
not the device's; beside a GPU it is pinned, which copies several times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes; a tensor of any type may start there."""


class HostCopy:
    """Holds the tensors as they were at one moment."""

    def __init__(self, device: torch.device) -> None:
        """Copy from a device."""
        self._device = device
        self._buffer = np.empty(0, dtype=np.uint8)

    def take(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy tensors; what was taken before is overwritten."""
        starts, total = {}, 0
        for name, tensor in tensors.items():
            starts[name] = total
            total += math.ceil(tensor.nbytes / ALIGNMENT) * ALIGNMENT
        if self._buffer.nbytes < total:
            self._buffer = self._allocate(total)
        copies = {}
        for name, tensor in tensors.items():
            # From numpy, so that each has a storage of its own: torch saves storages.
            part = torch.from_numpy(
                self._buffer[starts[name] : starts[name] + tensor.nbytes]
            )
            copies[name] = part.view(tensor.dtype).view(tensor.shape)
            copies[name].copy_(tensor, non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return copies

    def _allocate(self, num_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Make a larger buffer."""
        if self._device.type == "cuda":
            return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True).numpy()
        return np.empty(num_bytes, dtype=np.uint8)
