"""Places to probe on, with counters of bytes: fake tensors or a real device.

traced     fake CPU tensors, with the operators of the device planned for; for the
           emulated device in a process that is one, with the workspaces of its kernels
measured   a GPU, or the emulated device that this process was started as
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import EMULATED_PRODUCT
from plimsoll_planner.units import product_name
from plimsoll_profiler.counting.gloo_scratch import gloo_scratch
from plimsoll_profiler.counting.kernel_workspaces import kernel_workspaces
from plimsoll_profiler.counting.live_bytes import CUDA_BLOCK_BYTES, LiveBytes
from plimsoll_profiler.counting.operator_policy import cuda_operators
from plimsoll_profiler.errors import NoDeviceError
from plimsoll_trainer.emulated.device import EmulatedDevice, is_emulated_device
from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.torch_internals.operators import NEEDS_NUMBERS, FakeTensorMode


class Meter(Protocol):
    """Bytes of live tensors, and their peak."""

    @property
    def current_bytes(self) -> int:
        """Bytes alive now."""
        ...

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive at a time since `reset_peak`."""
        ...

    def reset_peak(self) -> None:
        """Start counting the peak from what is alive now."""


class CudaMeter:
    """The allocator's counters of the current GPU."""

    @property
    def current_bytes(self) -> int:
        """Bytes of all tensors alive now."""
        return torch.cuda.memory_allocated()

    @property
    def peak_bytes(self) -> int:
        """Most of them since `reset_peak`."""
        return torch.cuda.max_memory_allocated()

    def reset_peak(self) -> None:
        """Start counting the peak from what is alive now."""
        torch.cuda.reset_peak_memory_stats()


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """A place to probe on."""

    kind: DeviceKind
    """Planned for; a trace runs elsewhere."""
    device: torch.device
    product: str
    meter: Meter
    is_real: bool
    """Seconds can be measured."""
    block_bytes: int
    """The allocator's unit."""

    def rounded(self, num_bytes: int) -> int:
        """Bytes that the allocator takes for a tensor."""
        return -(-num_bytes // self.block_bytes) * self.block_bytes

    def bytes_of(self, tensor: Tensor) -> int:
        """Bytes that the allocator took for a tensor, all of its storage."""
        return self.rounded(tensor.untyped_storage().nbytes())

    def wait(self) -> None:
        """Let the device finish what it was given."""
        if self.is_real and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@contextmanager
def open_bench(kind: DeviceKind, source: Source) -> Iterator[Bench]:
    """Set up a place to probe on.

    Raises:
        NoDeviceError: a GPU is to be measured, and there is none.
        WorkloadError: a number is asked for inside, of tensors that have none.
    """
    with ExitStack() as stack:
        stack.enter_context(settled_heap())
        if kind is DeviceKind.EMULATED:
            stack.enter_context(gloo_scratch())
        if source is Source.MEASURED:
            yield measuring_bench(kind)
            return
        try:
            yield traced_bench(kind, stack)
        except NEEDS_NUMBERS as error:
            raise WorkloadError(
                f"{located(error)}: a number is read from a tensor, and those of a "
                "trace have none: profile with --source measured, and plan without "
                "--replay"
            ) from error


@contextmanager
def settled_heap() -> Iterator[None]:
    """Let collections look at no more than what is made from here on.

    Bytes are counted after a collection, and torch's own objects take one 0.3 s. Around
    several benches, what was there before the first is passed over for all of them.
    """
    gc.collect()
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def traced_bench(kind: DeviceKind, stack: ExitStack) -> Bench:
    """Count fake tensors until the stack is closed."""
    block_bytes = CUDA_BLOCK_BYTES if kind is DeviceKind.CUDA else 1
    workspaces = None
    if kind is DeviceKind.EMULATED and is_emulated_device():
        workspaces = kernel_workspaces()
    stack.enter_context(FakeTensorMode())
    if kind is DeviceKind.CUDA:
        stack.enter_context(cuda_operators())
    return Bench(
        kind=kind,
        device=torch.device("cpu"),
        product="traced",
        meter=stack.enter_context(LiveBytes(block_bytes, workspaces)),
        is_real=False,
        block_bytes=block_bytes,
    )


def measuring_bench(kind: DeviceKind) -> Bench:
    """Read the counters of the device that is here."""
    if kind is DeviceKind.EMULATED:
        return Bench(
            kind=kind,
            device=torch.device("cpu"),
            product=EMULATED_PRODUCT,
            meter=EmulatedDevice(),
            is_real=True,
            block_bytes=1,
        )
    if not torch.cuda.is_available():
        raise NoDeviceError(
            "a measured profile for CUDA needs a GPU, and torch sees none: profile "
            "with --source traced, or on a machine with a GPU"
        )
    return Bench(
        kind=kind,
        device=torch.device("cuda", torch.cuda.current_device()),
        product=product_name(torch.cuda.get_device_name()),
        meter=CudaMeter(),
        is_real=True,
        block_bytes=CUDA_BLOCK_BYTES,
    )
