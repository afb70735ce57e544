"""Whether an error means that the device is full.

A full GPU raises `torch.OutOfMemoryError` where torch's allocator asked for memory, and
plain errors with a text where CUDA or one of its libraries did; a full emulated device
makes torch's CPU allocator raise a plain `RuntimeError`. Either may come wrapped: the
pipeline runtime raises its own error from the one that a stage raised.
"""

from __future__ import annotations

import re

import torch

from plimsoll_trainer.errors import causes

FULL = re.compile(
    r"""
    DefaultCPUAllocator:\ can't\ allocate\ memory   # an emulated device
    | CUDA\ (driver\ )?error:\ out\ of\ memory      # torch, for the CUDA runtime
    | Cuda\ failure\ (\d+\ )?'out\ of\ memory'     # NCCL, as DistBackendError
    | Failed\ to\ CUDA\ [cm]alloc                  # NCCL, where that is its last word
    | CU[A-Z]+_STATUS_ALLOC_FAILED                # cuBLAS, cuDNN, cuSOLVER ..
    | CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
    """,
    re.VERBOSE,
)
"""In the text of a `RuntimeError` that means a full device."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from, means a full device."""
    return any(
        isinstance(part, torch.OutOfMemoryError)
        or (isinstance(part, RuntimeError) and FULL.search(str(part)))
        for part in causes(error)
    )
