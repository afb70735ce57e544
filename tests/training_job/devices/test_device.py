"""A rank computes on the device that was planned for, or not at all."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_trainer.devices.device import (
    CudaDevice,
    HostDevice,
    UsedBytes,
    open_device,
)
from plimsoll_trainer.errors import NoEmulatedDeviceError, NoGpuError
from tests.support.ranks import run_ranks


def test_without_a_gpu_nothing_trains() -> None:
    """A plan for GPUs never falls back to the CPU."""
    with pytest.raises(NoGpuError, match=r"local rank 4096 finds .* start the rank"):
        open_device(DeviceKind.CUDA, 4096)


def test_an_emulated_device_must_be_one() -> None:
    """A process without the counters is refused."""
    with pytest.raises(NoEmulatedDeviceError, match="not started as an emulated"):
        open_device(DeviceKind.EMULATED, 0)


def peaks_of_a_tensor() -> tuple[int, UsedBytes, UsedBytes]:
    """Hold 4 MB for a moment; return what was read, in a forked rank."""
    device = HostDevice()
    before = device.allocated_bytes
    block = torch.empty(1_000_000)
    del block
    return before, device.read_peak(), device.read_peak()


def test_a_peak_is_read_once() -> None:
    """The next one starts from what is alive; the three numbers are one."""
    (found,) = run_ranks(peaks_of_a_tensor, 1)
    before, first, second = found
    assert first.allocated == first.reserved == first.device
    assert first.allocated == before + 4_000_000
    assert second.allocated == before


def test_the_most_is_taken_number_by_number() -> None:
    """Peaks of different numbers may stem from different moments."""
    left = UsedBytes(allocated=1, reserved=5, device=9)
    right = UsedBytes(allocated=2, reserved=4, device=9)
    assert left.most(right) == UsedBytes(allocated=2, reserved=5, device=9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_tells_tensors_from_the_rest() -> None:
    """Allocated lies in reserved, reserved in what the device has in use."""
    device = CudaDevice(0)
    block = torch.empty(64 * 2**20, dtype=torch.uint8, device=device.torch_device)
    found = device.read_peak()
    assert block.nbytes <= found.allocated <= found.reserved < found.device
    assert found.device <= device.capacity_bytes
    del block
    assert device.read_peak().allocated >= 64 * 2**20
    assert device.read_peak().allocated < 64 * 2**20
