"""Copies between the memory of a rank's device and that of its machine.

On a GPU they run on one stream of their own, in the order in which they are asked for,
beside what the device computes:

    compute   backward, norm |                     waits | next forward
    link                     | g 1  g 2  g 3  p 1  p 2  p 3
    CPU                          waits | step 1  step 2  step 3

Memory of the host is pinned there, or copies would pass through another buffer; where
that fails it is not, and the bytes are noted. On an emulated device a copy is a copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.errors import HostFullError, described
from plimsoll_trainer.out_of_memory import is_out_of_memory

Pairs = Iterable[tuple[Tensor, Tensor]]
"""(on the host, on the device), of one shape, type and order in memory: no copy needs a
third place."""
Wait = Callable[[], None]
"""Waits for copies that were asked for, and for no later ones."""


def nothing() -> None:
    """Wait for nothing."""


def rank_threads(device: torch.device) -> int:
    """Threads of a rank that steps on the host; beside GPUs its part of the cores."""
    if device.type != "cuda" or "OMP_NUM_THREADS" in os.environ:
        return torch.get_num_threads()
    return max(len(os.sched_getaffinity(0)) // max(torch.cuda.device_count(), 1), 1)


@contextmanager
def made_on_host() -> Iterator[None]:
    """Let tensors that are made meanwhile lie in the host's memory.

    Raises:
        HostFullError: it has no room for one; the device may have.
    """
    try:
        with host_memory():
            yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise HostFullError(
            "no memory of the host is left for what the plan keeps there "
            f"({described(error)}): plan with --optimizer-home device and --offload "
            "none (`spec.override`), or run on a machine, or in pods, with more"
        ) from error


class HostLink:
    """The link of one device, which all layers of its rank use in turn."""

    def __init__(self, device: torch.device, *, pins: bool | None = None) -> None:
        """Make the stream; memory is pinned beside a GPU, unless that is chosen."""
        self.is_cuda = device.type == "cuda"
        self._stream: torch.cuda.Stream | None = None
        if self.is_cuda:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pins = self.is_cuda if pins is None else pins
        self.unpinned_bytes = 0
        """Of what was to be pinned and could not be."""

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        """Memory of the host for some numbers; those of an emulated device are not."""
        with made_on_host():
            if self._pins and not self.unpinned_bytes:
                try:
                    return torch.empty(count, dtype=dtype, pin_memory=True)
                except RuntimeError:  # CUDA's own word for it depends on the machine
                    pass
            made = torch.empty(count, dtype=dtype, device="cpu")
        self.unpinned_bytes += made.nbytes if self._pins else 0
        return made

    @torch.no_grad()
    def start(self, to: Tensor, source: Tensor) -> Wait:
        """Begin a copy of what the device has computed by then, either way.

        Returns:
            Lets the device wait for it, not this process.
        """
        if self._stream is None:
            to.copy_(source)
            return nothing
        computing = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            to.copy_(source, non_blocking=True)
            event = self._stream.record_event()
        device = self._stream.device

        def wait() -> None:
            torch.cuda.current_stream(device).wait_event(event)

        return wait

    @torch.no_grad()
    def to_host(self, pairs: Pairs) -> Wait:
        """Copy to the host what the device has computed by then."""
        if self._stream is None:
            for host, there in pairs:
                host.copy_(there)
            return nothing
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            for host, there in pairs:
                host.copy_(there, non_blocking=True)
            wait: Wait = self._stream.record_event().synchronize
        return wait

    @torch.no_grad()
    def to_device(self, pairs: Pairs) -> None:
        """Copy to the device, which computes nothing more before it has them."""
        if self._stream is None:
            for host, there in pairs:
                there.copy_(host)
            return
        with torch.cuda.stream(self._stream):
            for host, there in pairs:
                there.copy_(host, non_blocking=True)
        torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
