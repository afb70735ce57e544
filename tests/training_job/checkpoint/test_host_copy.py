"""A copy for the checkpoint is in host memory and costs the device nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_trainer.checkpoint.host_copy import HostCopy
from plimsoll_trainer.emulated.device import EmulatedDevice
from tests.support.ranks import run_ranks

CPU = torch.device("cpu")


def bytes_of_a_copy() -> tuple[int, bool]:
    """Copy 4 MB twice; return what the device counted, and whether it is a copy."""
    device, copy = EmulatedDevice(), HostCopy(CPU)
    tensors = {"a": torch.ones(1000, 1000), "b": torch.ones(3, dtype=torch.bfloat16)}
    device.reset_peak()
    before = device.current_bytes
    copy.take(tensors)
    found = copy.take(tensors)
    counted = device.peak_bytes - before
    tensors["a"].zero_()
    alike = bool((found["a"] == 1).all()) and found["b"].dtype is torch.bfloat16
    return counted, alike


def test_a_copy_is_not_on_the_device() -> None:
    """An emulated device counts no byte of it."""
    assert run_ranks(bytes_of_a_copy, 1) == [(0, True)]


def test_shapes_and_types_stay() -> None:
    """Scalars, empty tensors, views and odd types."""
    tensors = {
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "turned": torch.arange(6).view(2, 3).t(),
        "flags": torch.tensor([True, False, True]),
        "half": torch.randn(5, dtype=torch.bfloat16),
    }
    found = HostCopy(CPU).take(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
        assert found[name].is_contiguous()
        assert found[name].untyped_storage().size() == tensor.nbytes
