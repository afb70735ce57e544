"""Tells whether an error means that the device is full.

A full GPU raises `torch.OutOfMemoryError`; a full emulated device makes torch's CPU
allocator raise a plain `RuntimeError`. Either may come wrapped: the pipeline runtime
raises its own error from the one that a stage raised.
"""

from __future__ import annotations

import torch

CPU_SAYS = "can't allocate memory"
"""As in `DefaultCPUAllocator: can't allocate memory: you tried to allocate ...`."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Tell whether an error, or one that it was raised from, means a full device."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        if isinstance(error, RuntimeError) and CPU_SAYS in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
