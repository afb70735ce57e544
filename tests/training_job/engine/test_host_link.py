"""Copies between host and device: what they wait for, and where they lie."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.host_link import HostLink
from tests.support.ranks import run_on_device

CPU = torch.device("cpu")


def counted_bytes() -> int:
    """Bytes of an emulated device that memory of its host takes."""
    device = EmulatedDevice()
    before = device.current_bytes
    made = HostLink(CPU).empty(2**20, torch.bfloat16)
    assert made.nbytes == 2**21
    return device.current_bytes - before


def test_memory_of_the_host_is_none_of_the_device() -> None:
    """An emulated device counts no byte of it."""
    assert run_on_device(counted_bytes) == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there memory can be pinned")
def test_memory_that_cannot_be_pinned_is_taken_all_the_same() -> None:
    """Its bytes are noted; the link goes on without trying again."""
    link = HostLink(CPU, pins=True)
    first, second = link.empty(100, torch.float32), link.empty(10, torch.bfloat16)
    assert not first.is_pinned()
    assert link.unpinned_bytes == first.nbytes + second.nbytes == 420
    plain = HostLink(CPU)
    plain.empty(100, torch.float32)
    assert plain.unpinned_bytes == 0


def test_copies_go_both_ways_in_place() -> None:
    """Also of tensors that lie across their memory."""
    link = HostLink(CPU)
    host, there = torch.zeros(2, 3).t(), torch.arange(6.0).view(2, 3).t()
    link.to_host([(host, there)])()
    assert torch.equal(host, there)
    link.to_device([(host.neg_(), there)])
    assert there.tolist() == [[0, -3], [-1, -4], [-2, -5]]
