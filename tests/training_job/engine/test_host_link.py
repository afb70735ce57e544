"""Copies between host and device: what they wait for, and where they lie."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.host_link import HostLink, made_on_host
from plimsoll_trainer.errors import HostFullError
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


def test_a_full_host_is_no_full_device() -> None:
    """So nobody plans anew for a device that has enough; other errors stay."""
    with pytest.raises(
        HostFullError, match=r"no memory of the host is left .* tried to"
    ):
        HostLink(CPU).empty(2**46, torch.float32)
    with pytest.raises(RuntimeError, match="another"), made_on_host():
        raise RuntimeError("another")


class Stream:
    """Stands for a stream of a GPU: notes what waits for what, and when."""

    def __init__(self, name: str, seen: list[str], there: torch.Tensor) -> None:
        """Belong to a GPU that is not here."""
        self.device = torch.device("cuda", 0)
        self.name = name
        self._seen, self._there = seen, there

    def note(self, what: str) -> None:
        """Note something, with what lies on the device by then."""
        self._seen.append(f"{what} at {self._there.tolist()}")

    def wait_stream(self, other: Stream) -> None:
        """Wait for all that was asked of another stream."""
        self.note(f"{self.name} waits for {other.name}")

    def record_event(self) -> Stream:
        """Note an event, which is this."""
        self.note("event")
        return self

    def synchronize(self) -> None:
        """Wait for the event."""
        self.note("host waits")


@pytest.mark.skipif(torch.cuda.is_available(), reason="for want of a GPU alone")
def test_copies_of_a_gpu_wait_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the host behind what was computed, to the device before what is computed next.

    No GPU is here, so streams are stand-ins, and nothing shows that copies overlap.
    """
    seen: list[str] = []
    there = torch.tensor([1.0])
    compute, own = (Stream(name, seen, there) for name in ("compute", "link"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: own)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: compute)
    link = HostLink(torch.device("cuda", 0))
    host = link.empty(1, torch.float32)
    wait = link.to_host([(host, there)])
    assert host.item() == 1.0
    wait()
    link.to_device([(host.add_(1), there)])
    assert seen == [
        "link waits for compute at [1.0]",
        "event at [1.0]",
        "host waits at [1.0]",
        "compute waits for link at [2.0]",
    ]
    assert link.unpinned_bytes == 4
