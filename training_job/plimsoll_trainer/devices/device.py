"""The device of a rank: how it is opened, how full it is, how full it has been.

A `cuda` plan runs on GPUs or not at all; an `emulated` one on this process, whose
tensors are counted and capped (`emulated`). Three numbers, never mixed: allocated
(tensors), reserved (what the allocator took), device (all of it). On an emulated device
they are one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

import torch

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import EMULATED_PRODUCT
from plimsoll_planner.units import product_name
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.errors import NoGpuError


@dataclass(frozen=True, kw_only=True, slots=True)
class UsedBytes:
    """Bytes in use at one moment, or at most in a span of time."""

    allocated: int
    reserved: int
    device: int

    def most(self, other: UsedBytes) -> UsedBytes:
        """The larger of each number."""
        return UsedBytes(
            allocated=max(self.allocated, other.allocated),
            reserved=max(self.reserved, other.reserved),
            device=max(self.device, other.device),
        )


class Device(Protocol):
    """Interface of a rank to its device."""

    kind: DeviceKind
    torch_device: torch.device
    """Of the tensors."""
    backend: str
    """Of torch.distributed, for the collectives of training."""
    product: str
    """Its name for people."""

    @property
    def capacity_bytes(self) -> int:
        """All there is; 0 where nothing ends it."""
        ...

    @property
    def allocated_bytes(self) -> int:
        """Of the tensors alive now."""
        ...

    def read_peak(self) -> UsedBytes:
        """The most since the last call; counting starts anew."""
        ...

    def trim(self) -> None:
        """Give back to the device what the allocator keeps and nothing lies in."""


class HostDevice:
    """This process as an emulated device."""

    kind = DeviceKind.EMULATED
    torch_device = torch.device("cpu")
    backend = "gloo"
    product = EMULATED_PRODUCT

    def __init__(self) -> None:
        """Find the counters; one thread, for ranks share the cores of one machine.

        What an entry point keeps, such as data, lies in the host's memory beside a GPU,
        so it takes none of this device's either.

        Raises:
            NoEmulatedDeviceError: the process was not started as an emulated device.
        """
        self._counters = EmulatedDevice()
        self._counters.leave_out()
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)

    @property
    def capacity_bytes(self) -> int:
        """The cap."""
        return self._counters.cap_bytes

    @property
    def allocated_bytes(self) -> int:
        """Of the tensors alive now."""
        return self._counters.current_bytes

    def read_peak(self) -> UsedBytes:
        """The most since the last call; counting starts anew."""
        peak = self._counters.peak_bytes
        self._counters.reset_peak()
        return UsedBytes(allocated=peak, reserved=peak, device=peak)

    def trim(self) -> None:
        """Do nothing: nothing is kept."""


class CudaDevice:
    """One GPU."""

    kind = DeviceKind.CUDA
    backend = "nccl"

    def __init__(self, local_rank: int) -> None:
        """Take the GPU of this rank.

        Raises:
            NoGpuError: there is none, or none for this rank.
        """
        found = torch.cuda.device_count()
        if local_rank >= found:
            raise NoGpuError(
                f"the plan is for GPUs, and local rank {local_rank} finds {found} of "
                "them: start the rank where there is one for it, or plan from offers "
                "of emulated devices"
            )
        self.torch_device = torch.device("cuda", local_rank)
        torch.cuda.set_device(self.torch_device)
        self.product = product_name(torch.cuda.get_device_name(self.torch_device))

    @property
    def capacity_bytes(self) -> int:
        """All there is."""
        return torch.cuda.mem_get_info(self.torch_device)[1]

    @property
    def allocated_bytes(self) -> int:
        """Of the tensors alive now."""
        return torch.cuda.memory_allocated(self.torch_device)

    def read_peak(self) -> UsedBytes:
        """The most since the last call; counting starts anew.

        The driver knows no peak: what is outside the allocator now is taken for what
        was outside at the peak, for contexts and communicators only grow.
        """
        device = self.torch_device
        allocated = torch.cuda.max_memory_allocated(device)
        reserved = torch.cuda.max_memory_reserved(device)
        free, total = torch.cuda.mem_get_info(device)
        outside = max(0, total - free - torch.cuda.memory_reserved(device))
        torch.cuda.reset_peak_memory_stats(device)
        return UsedBytes(
            allocated=allocated, reserved=reserved, device=reserved + outside
        )

    def trim(self) -> None:
        """Empty the allocator's cache."""
        torch.cuda.empty_cache()


def nccl_version() -> str:
    """Version of NCCL as people write it."""
    found: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, found))


def open_device(kind: DeviceKind, local_rank: int) -> Device:
    """Open the device that the plan asks for, and no other.

    Raises:
        NoGpuError, NoEmulatedDeviceError: there is none of the kind.
    """
    return CudaDevice(local_rank) if kind is DeviceKind.CUDA else HostDevice()
