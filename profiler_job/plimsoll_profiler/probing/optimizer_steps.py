"""Steps of one optimizer, and the bytes that they take.

The first one makes the state that is kept; the peak of the second is what every step
holds on top. Called where the state of a layer is probed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from plimsoll_profiler.counting.meters import Bench
from plimsoll_trainer.engine.gradients import attach_gradients
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer, scale, squared_norm
from plimsoll_trainer.workload import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """Steps of an optimizer, and the bytes that they take."""

    gradients: Sequence[Tensor]
    once: Callable[[], None]
    kept_bytes: int
    transient_bytes: int


def probe_steps(
    parameters: Sequence[nn.Parameter], workload: Workload, bench: Bench
) -> Steps:
    """Step trained parameters twice, which may be none."""
    gradients = attach_gradients(parameters, workload.gradient_dtype)
    before_bytes = bench.meter.current_bytes
    optimizer = None
    if parameters:
        make, least = workload.optimizer, workload.stepped_dtype
        optimizer = LayerOptimizer(parameters, make, least)
    once = partial(step_once, gradients, optimizer, bench.device)
    once()
    kept_bytes = bench.meter.current_bytes - before_bytes
    bench.meter.reset_peak()
    once()
    return Steps(
        gradients=gradients,
        once=once,
        kept_bytes=kept_bytes,
        transient_bytes=bench.meter.peak_bytes - before_bytes - kept_bytes,
    )


def step_once(
    gradients: Sequence[Tensor], optimizer: LayerOptimizer | None, device: torch.device
) -> None:
    """Do what a layer's parameters see at the end of a step."""
    measure(gradients, device)
    if optimizer is not None:
        optimizer.step(1.0)


def measure(gradients: Sequence[Tensor], device: torch.device) -> None:
    """Do what gradients see before the optimizer steps."""
    scale(gradients, 1.0)  # to a mean
    squared_norm(gradients, device)
    scale(gradients, 1.0)  # to a limited norm
