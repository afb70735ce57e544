"""State of a layer whatever the micro-batch: parameters, gradients, optimizer.

Also by number, where replicas divide what the optimizer keeps. Called by the prober.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from plimsoll_planner.records.model_profile import TiedLayers
from plimsoll_profiler.counting.meters import Bench
from plimsoll_profiler.counting.work_counter import count_work, ring_of
from plimsoll_profiler.probing.divided_state import Divider
from plimsoll_profiler.probing.host_steps import HostSteps
from plimsoll_profiler.probing.layer_timing import median_s
from plimsoll_profiler.probing.messages import LayerState
from plimsoll_profiler.probing.optimizer_steps import probe_steps
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.gradients import attach_gradients, gradient_of
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer
from plimsoll_trainer.engine.split_tensors import here, is_part_of_sum, parameters_here
from plimsoll_trainer.engine.tied_tensors import tensor_in
from plimsoll_trainer.torch_internals.operators import storage_of
from plimsoll_trainer.workload import Workload


def probe_state(
    workload: Workload,
    index: int,
    bench: Bench,
    divider: Divider | None = None,
    host_steps: HostSteps | None = None,
    mesh: DeviceMesh | None = None,
    *,
    sequence_parallel: bool = False,
) -> tuple[nn.Module, LayerState]:
    """Build a layer and step its optimizer; `divider` if replicas may divide it.

    On a real device also on the host, if `host_steps` are given. Over a mesh, the part
    that its first rank has.
    """
    layer = build_layer(
        workload, index, bench.device, mesh, sequence_parallel=sequence_parallel
    )
    every = parameters_here(layer)
    parameters = [p for p in every if p.requires_grad]
    steps = probe_steps(parameters, workload, bench)
    divided = None
    if divider is not None:
        divided = divider.state_of(every, steps.kept_bytes, bench)
    parts = [gradient_of(p) for p in parameters if is_part_of_sum(p)]
    messages = [ring_of(part.nbytes, 2) for part in parts if part is not None]
    return layer, LayerState(
        parameter_bytes=nbytes(every, bench),
        gradient_bytes=nbytes(steps.gradients, bench),
        buffer_bytes=nbytes(map(here, layer.buffers()), bench),
        optimizer_bytes=steps.kept_bytes,
        optimizer_transient_bytes=steps.transient_bytes,
        optimizer_traffic_bytes=count_work(steps.once).traffic_bytes,
        optimizer_step_s=median_s(steps.once, bench) if bench.is_real else None,
        host_step_s=host_steps.seconds(parameters, steps.gradients, bench)
        if host_steps and bench.is_real
        else None,
        divided=divided,
        step_sent_bytes=sum(sent for sent, _ in messages),
        step_latencies=sum(latencies for _, latencies in messages),
    )


def nbytes(tensors: Iterable[Tensor], bench: Bench) -> int:
    """Bytes of different tensors, in blocks of the device."""
    storages = dict(storage_of(tensor) for tensor in tensors)
    return sum(bench.rounded(storage.nbytes()) for storage in storages.values())


def tied_layers(
    workload: Workload,
    bench: Bench,
    divider: Divider | None = None,
    mesh: DeviceMesh | None = None,
    *,
    sequence_parallel: bool = False,
) -> Iterator[TiedLayers]:
    """Yield what the layers of each tie share, on one rank of a mesh."""
    for tie in workload.ties:
        layers = tuple(sorted({workload.index_of(name) for name, _ in tie.places}))
        if len(layers) > 1:  # within a layer no two rows of the costs share
            (first, name), *_ = tie.places
            layer = build_layer(
                *(workload, workload.index_of(first), bench.device, mesh),
                sequence_parallel=sequence_parallel,
            )
            tensor = here(tensor_in(layer, name))
            yield tied_state(workload, tensor, layers, bench, divider)


def tied_state(
    workload: Workload,
    tensor: Tensor,
    layers: tuple[int, ...],
    bench: Bench,
    divider: Divider | None,
) -> TiedLayers:
    """Bytes of one tensor that several layers share."""
    if not isinstance(tensor, nn.Parameter):
        return TiedLayers(layers=layers, buffer_bytes=bench.bytes_of(tensor))
    if not tensor.requires_grad:
        return TiedLayers(layers=layers, parameter_bytes=bench.bytes_of(tensor))
    attach_gradients([tensor], workload.gradient_dtype)
    gradient = gradient_of(tensor)
    before_bytes = bench.meter.current_bytes
    optimizer = LayerOptimizer([tensor], workload.optimizer, workload.stepped_dtype)
    optimizer.step(1.0)
    kept_bytes = bench.meter.current_bytes - before_bytes
    found = TiedLayers(
        layers=layers,
        parameter_bytes=bench.bytes_of(tensor),
        gradient_bytes=0 if gradient is None else bench.rounded(gradient.nbytes),
        optimizer_bytes=kept_bytes,
    )
    if divider is None:
        return found
    divided = divider.state_of([tensor], kept_bytes, bench)
    return replace(
        found,
        num_numbers=divided.num_numbers,
        optimizer_bytes_per_number=divided.optimizer_bytes_per_number,
    )
