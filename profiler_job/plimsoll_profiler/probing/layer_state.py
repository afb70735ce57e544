"""State of a layer whatever the micro-batch: parameters, gradients, optimizer.

The optimizer is stepped twice: the first time makes its state, the second one's peak
is what every step holds on top. Called by the prober.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from plimsoll_planner.records.model_profile import TiedLayers
from plimsoll_profiler.counting.meters import Bench
from plimsoll_profiler.counting.work_counter import count_work
from plimsoll_profiler.probing.layer_timing import median_s
from plimsoll_profiler.probing.messages import LayerState
from plimsoll_trainer.engine.gradients import attach_gradients, gradient_of
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer, scale, squared_norm
from plimsoll_trainer.engine.shared_tensors import tensor_in
from plimsoll_trainer.engine.stage import build_layer
from plimsoll_trainer.torch_internals import storage_of
from plimsoll_trainer.workload import Tie, Workload


def probe_state(
    workload: Workload, index: int, bench: Bench
) -> tuple[nn.Module, LayerState]:
    """Build a layer and step its optimizer twice; the first time makes its state."""
    layer = build_layer(workload, index, bench.device)
    parameters = [p for p in layer.parameters() if p.requires_grad]
    gradients = attach_gradients(parameters, workload.gradient_dtype)
    before_bytes = bench.meter.current_bytes
    optimizer = LayerOptimizer(parameters, workload.optimizer) if parameters else None
    step = partial(step_once, gradients, optimizer, bench.device)
    step()
    kept_bytes = bench.meter.current_bytes - before_bytes
    bench.meter.reset_peak()
    step()
    transient_bytes = bench.meter.peak_bytes - before_bytes - kept_bytes
    return layer, LayerState(
        parameter_bytes=nbytes(layer.parameters(), bench),
        gradient_bytes=nbytes(gradients, bench),
        buffer_bytes=nbytes(layer.buffers(), bench),
        optimizer_bytes=kept_bytes,
        optimizer_transient_bytes=transient_bytes,
        optimizer_traffic_bytes=count_work(step).traffic_bytes,
        optimizer_step_s=median_s(step, bench) if bench.is_real else None,
    )


def step_once(
    gradients: Sequence[Tensor], optimizer: LayerOptimizer | None, device: torch.device
) -> None:
    """Do what a layer's parameters see at the end of a step."""
    scale(gradients, 1.0)  # to a mean
    squared_norm(gradients, device)
    scale(gradients, 1.0)  # to a limited norm
    if optimizer is not None:
        optimizer.step(1.0)


def nbytes(tensors: Iterable[Tensor], bench: Bench) -> int:
    """Bytes of different tensors, in blocks of the device."""
    storages = dict(storage_of(tensor) for tensor in tensors)
    return sum(bench.rounded(storage.nbytes()) for storage in storages.values())


def tied_layers(workload: Workload, bench: Bench) -> Iterator[TiedLayers]:
    """Yield what the layers of each tie share."""
    for tie in workload.ties:
        layers = tuple(sorted({workload.index_of(name) for name, _ in tie.places}))
        if len(layers) > 1:  # within a layer no two rows of the costs share
            yield tied_state(workload, tie, layers, bench)


def tied_state(
    workload: Workload, tie: Tie, layers: tuple[int, ...], bench: Bench
) -> TiedLayers:
    """Bytes of one tensor that several layers share."""
    (first, name), *_ = tie.places
    layer = build_layer(workload, workload.index_of(first), bench.device)
    tensor = tensor_in(layer, name)
    if not isinstance(tensor, nn.Parameter):
        return TiedLayers(layers=layers, buffer_bytes=bench.bytes_of(tensor))
    attach_gradients([tensor], workload.gradient_dtype)
    gradient = gradient_of(tensor)
    before_bytes = bench.meter.current_bytes
    optimizer = LayerOptimizer([tensor], workload.optimizer)
    optimizer.step(1.0)
    return TiedLayers(
        layers=layers,
        parameter_bytes=bench.bytes_of(tensor),
        gradient_bytes=0 if gradient is None else bench.rounded(gradient.nbytes),
        optimizer_bytes=bench.meter.current_bytes - before_bytes,
    )
