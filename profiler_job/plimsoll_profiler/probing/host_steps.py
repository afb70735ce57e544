"""Seconds of a layer's step where its optimizer is in the memory of the host.

Gradients are scaled and their norm is taken on the device, as ever; then the host steps
by as many threads as a rank has. A layer of very many numbers is stepped on in part, so
that the profiler needs no more of the host than a rank's process has anyway.

In: the trained parameters of a layer, with gradients. Out: seconds, without copies.
Called where the state of a layer is probed on a real device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.meters import Bench
from plimsoll_profiler.probing.layer_timing import median_s
from plimsoll_profiler.probing.optimizer_steps import measure
from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.gradients import attach_gradients
from plimsoll_trainer.engine.host_link import rank_threads
from plimsoll_trainer.engine.host_optimizer import choose_fused
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer
from plimsoll_trainer.workload import Workload

PART = (2**16, 64)
"""Of a layer with more numbers; with Adam's state it fills the caches."""
Form = tuple[torch.Size, torch.dtype]


class HostSteps:
    """Seconds of steps of one workload; layers of the same forms are timed once."""

    def __init__(self, workload: Workload) -> None:
        """Time nothing yet."""
        self._workload = workload
        self._found: dict[tuple[Form, ...], float] = {}

    def seconds(
        self, trained: Sequence[nn.Parameter], gradients: Sequence[Tensor], bench: Bench
    ) -> float:
        """Seconds of the step of one layer, on the device and on the host."""
        if not trained:
            return 0.0
        key = tuple((parameter.shape, parameter.dtype) for parameter in trained)
        if key not in self._found:
            on_device_s = median_s(lambda: measure(gradients, bench.device), bench)
            self._found[key] = on_device_s + self._on_host_s(key, bench)
        return self._found[key]

    def _on_host_s(self, forms: Sequence[Form], bench: Bench) -> float:
        """Seconds of a step on parameters of some forms, or on a part of as many."""
        total = sum(shape.numel() for shape, _ in forms)
        part = torch.Size(PART)
        tried = forms if total <= part.numel() else [(part, forms[0][1])]
        with host_memory(), threads(rank_threads(bench.device)):
            parameters = [
                nn.Parameter(torch.zeros(shape, dtype=dtype, device="cpu"))
                for shape, dtype in tried
            ]
            attach_gradients(parameters, self._workload.gradient_dtype)
            workload = self._workload
            optimizer = LayerOptimizer(
                parameters, workload.optimizer, workload.stepped_dtype
            )
            if bench.kind is DeviceKind.CUDA:
                choose_fused(optimizer.optimizer)
            optimizer.step(1.0)  # makes the state
            step_s = median_s(lambda: optimizer.step(1.0), bench)
        return step_s * max(total / part.numel(), 1.0)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute with so many threads meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
