"""The child process that probes: reads requests, answers each, may die on any.

Runs one layer at a time, so a model of any depth and size is probed on one device
that holds its largest layer. Started as a module of its own by `prober_process`.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TextIO

import torch
from torch import Tensor, nn

from plimsoll_planner.records.document import Document, from_text, to_text
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    ProbeOutcome,
    Recipe,
    TiedLayers,
)
from plimsoll_profiler.cases import cases_of
from plimsoll_profiler.layer_probe import LayerCase, MicroBatch, probe_activations
from plimsoll_profiler.messages import (
    Frame,
    LayerState,
    PassCosts,
    ProbeRequest,
    ProbeResult,
)
from plimsoll_profiler.meters import Bench, open_bench
from plimsoll_profiler.request import DEBUG_VARIABLE
from plimsoll_profiler.work_counter import Work, count_work
from plimsoll_trainer.boundaries import Boundaries, boundaries_of
from plimsoll_trainer.entrypoint import load_workload
from plimsoll_trainer.errors import TrainerError, described
from plimsoll_trainer.exit_codes import ExitCode
from plimsoll_trainer.fingerprint import fingerprint_of
from plimsoll_trainer.gradients import attach_gradients
from plimsoll_trainer.layer_optimizer import LayerOptimizer, scale, squared_norm
from plimsoll_trainer.out_of_memory import is_out_of_memory
from plimsoll_trainer.stage import build_layer
from plimsoll_trainer.torch_internals import storage_of
from plimsoll_trainer.workload import Workload, optimizer_mode

FEWEST_RUNS, MOST_RUNS, ENOUGH_S = 3, 30, 0.2
"""A pass is timed until it ran for so long in total, within these bounds."""
CACHE_BYTES = 2**27
"""More than the last cache of a CPU or a GPU of 2026 holds."""


def main() -> int:
    """Answer requests until the input ends."""
    entrypoint, arguments, kind, source, sizes = sys.argv[1:]
    out = sys.stdout
    sys.stdout = sys.stderr  # what the workload prints must not mix with answers
    torch.set_num_threads(1)
    try:
        workload = load_workload(entrypoint, json.loads(arguments))
        prober = Prober(workload, sorted({1, *json.loads(sizes)}))
        with open_bench(DeviceKind(kind), Source(source)) as bench:
            answer(out, prober.frame(entrypoint, bench))
            for line in sys.stdin:
                request = from_text(line, ProbeRequest)
                answer(out, prober.probe(request, bench))
    except TrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        print(described(error), file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.DONE


def answer(out: TextIO, document: Document) -> None:
    """Send one line at once."""
    out.write(to_text(document) + "\n")
    out.flush()


class Prober:
    """Probes the layers of one workload."""

    def __init__(self, workload: Workload, micro_batches: Sequence[int]) -> None:
        """Find kinds and shapes, while tensors still have data."""
        self.workload = workload
        self.shapes = {b: boundaries_of(workload, b) for b in micro_batches}
        self.cases, self.kind_of_layer = cases_of(workload, self.shapes[1].between)

    def frame(self, entrypoint: str, bench: Bench) -> Frame:
        """Say what is known before anything is probed."""
        shapes, workload = self.shapes[1], self.workload
        sample = torch.nn.Parameter(torch.zeros(2, 2))
        optimizer = workload.optimizer([sample])
        return Frame(
            fingerprint=fingerprint_of(entrypoint),
            recipe=Recipe(
                precision=workload.precision,
                optimizer=type(optimizer).__name__,
                optimizer_mode=optimizer_mode(optimizer, bench.kind),
            ),
            device_product=bench.product,
            tokens_per_sample=workload.tokens_per_sample,
            input_bytes_per_sample=shapes.between[0].nbytes,
            target_bytes_per_sample=shapes.targets.nbytes,
            layers=tuple(layer.name for layer in workload.layers),
            kind_of_layer=self.kind_of_layer,
            cases=self.cases,
            tied=tuple(tied_layers(workload, bench)),
        )

    def probe(self, request: ProbeRequest, bench: Bench) -> ProbeResult:
        """Probe one case; out of memory is an outcome."""
        try:
            result = self._probe(request, bench)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            result = ProbeResult(
                case=request.case,
                micro_batch=request.micro_batch,
                outcome=ProbeOutcome.OUT_OF_MEMORY,
                said=str(error).strip().splitlines()[0][:1000],
            )
        gc.collect()
        return result

    def _probe(self, request: ProbeRequest, bench: Bench) -> ProbeResult:
        case = self.cases[request.case]
        layer, state = probe_state(self.workload, case.layer, bench)
        where = self.place_of(case.layer, self.shapes[request.micro_batch])
        alike = [layer, *self.others_of(request.case, state, bench)]
        kept = probe_passes(alike, where, bench)
        recomputed = None
        if case.recomputable:
            recomputed = probe_passes(alike, replace(where, recomputed=True), bench)
        return ProbeResult(
            case=request.case,
            micro_batch=request.micro_batch,
            outcome=ProbeOutcome.COMPLETED,
            state=state,
            kept=kept,
            recomputed=recomputed,
        )

    def others_of(self, kind: int, state: LayerState, bench: Bench) -> list[nn.Module]:
        """Build other layers of a kind, to be timed in turn with the first.

        A step comes back to a layer after all others: one that is timed alone has its
        parameters in a cache and looks faster than it is. So there are as many as the
        model has, or as fill the caches, or none where they do not fit.
        """
        own = state.parameter_bytes + state.gradient_bytes
        if not bench.is_real or not own:
            return []
        count = min(self.kind_of_layer.count(kind), -(-CACHE_BYTES // own))
        layers: list[nn.Module] = []
        try:
            for _ in range(count - 1):
                layers.append(
                    build_layer(self.workload, self.cases[kind].layer, bench.device)
                )
                attach_gradients(layers[-1].parameters())
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return []
        return layers

    def place_of(self, index: int, shapes: Boundaries) -> LayerCase:
        """Describe a layer's place in the chain."""
        is_last = index == len(self.workload.layers) - 1
        return LayerCase(
            incoming=shapes.between[index],
            is_first=index == 0,
            targets=shapes.targets if is_last else None,
            loss=self.workload.loss if is_last else None,
        )


def probe_state(
    workload: Workload, index: int, bench: Bench
) -> tuple[nn.Module, LayerState]:
    """Build a layer and step its optimizer twice; the first time makes its state."""
    layer = build_layer(workload, index, bench.device)
    parameters = [p for p in layer.parameters() if p.requires_grad]
    gradients = attach_gradients(parameters)
    before = bench.meter.current_bytes
    optimizer = LayerOptimizer(parameters, workload.optimizer) if parameters else None
    step = partial(step_once, gradients, optimizer, bench.device)
    step()
    made = bench.meter.current_bytes - before
    bench.meter.reset_peak()
    now = bench.meter.current_bytes
    step()
    transient = bench.meter.peak_bytes - now
    return layer, LayerState(
        parameter_bytes=nbytes(layer.parameters(), bench),
        gradient_bytes=nbytes(gradients, bench),
        buffer_bytes=nbytes(layer.buffers(), bench),
        optimizer_bytes=made,
        optimizer_transient_bytes=transient,
        optimizer_traffic_bytes=count_work(step).traffic_bytes,
        optimizer_step_s=median_s(step, bench) if bench.is_real else None,
    )


def step_once(
    gradients: Sequence[Tensor],
    optimizer: LayerOptimizer | None,
    device: torch.device,
) -> None:
    """Do what a layer's parameters see at the end of a step."""
    scale(gradients, 1.0)  # to a mean
    squared_norm(gradients, device)
    scale(gradients, 1.0)  # to a limited norm
    if optimizer is not None:
        optimizer.step(1.0)


def probe_passes(
    alike: Sequence[nn.Module], where: LayerCase, bench: Bench
) -> PassCosts:
    """Probe bytes, then count work, then measure seconds, of layers of one kind."""
    layer = alike[0]
    if bench.is_real:
        probe_activations(layer, where, bench)  # warms up
        gc.collect()
    activations = probe_activations(layer, where, bench)
    forward_work, backward_work = work_of(layer, where, bench)
    forward_s, backward_s = (
        time_passes(alike, where, bench) if bench.is_real else (None,) * 2
    )
    return PassCosts(
        **asdict(activations),
        forward_flop=forward_work.flop,
        forward_traffic_bytes=forward_work.traffic_bytes,
        backward_flop=backward_work.flop,
        backward_traffic_bytes=backward_work.traffic_bytes,
        forward_s=forward_s,
        backward_s=backward_s,
    )


def work_of(layer: nn.Module, where: LayerCase, bench: Bench) -> tuple[Work, Work]:
    """Count what forward and backward do."""
    run = MicroBatch(layer, where, bench.device)
    forward = count_work(run.forward)
    run.release_output()
    run.turn()
    return forward, count_work(run.backward)


def time_passes(
    alike: Sequence[nn.Module], where: LayerCase, bench: Bench
) -> tuple[float, float]:
    """Return median seconds of forward and backward, of layers run in turn.

    Where not all of them fit at the same time, the first is timed alone.
    """
    try:
        return time_in_turn(alike, where, bench)
    except RuntimeError as error:
        if len(alike) == 1 or not is_out_of_memory(error):
            raise
    return time_in_turn(alike[:1], where, bench)


def time_in_turn(
    alike: Sequence[nn.Module], where: LayerCase, bench: Bench
) -> tuple[float, float]:
    """Return median seconds of all forward, then all backward passes."""
    forward: list[float] = []
    backward: list[float] = []
    while len(forward) < FEWEST_RUNS or (
        len(forward) < MOST_RUNS and sum(forward) + sum(backward) < ENOUGH_S
    ):
        there, back = time_once(alike, where, bench)
        forward += there
        backward += back
    return statistics.median(forward), statistics.median(backward)


def time_once(
    alike: Sequence[nn.Module], where: LayerCase, bench: Bench
) -> tuple[list[float], list[float]]:
    """Return the seconds of each forward pass, and of each backward pass."""
    runs = [MicroBatch(layer, where, bench.device) for layer in alike]
    forward = [seconds(run.forward, bench) for run in runs]
    backward: list[float] = []
    for run in reversed(runs):
        run.release_output()
        run.turn()
        backward.append(seconds(run.backward, bench))
    return forward, backward


def median_s(run: Callable[[], object], bench: Bench) -> float:
    """Return the median seconds of a few runs."""
    return statistics.median(seconds(run, bench) for _ in range(FEWEST_RUNS))


def seconds(run: Callable[[], object], bench: Bench) -> float:
    """Run something and return its seconds, the device's work included."""
    bench.wait()
    start = time.perf_counter()
    run()
    bench.wait()
    return time.perf_counter() - start


def nbytes(tensors: Iterable[Tensor], bench: Bench) -> int:
    """Return the bytes of different tensors, in blocks of the device."""
    storages = dict(storage_of(tensor) for tensor in tensors)
    return sum(bench.rounded(storage.nbytes()) for storage in storages.values())


def tied_layers(workload: Workload, bench: Bench) -> Iterable[TiedLayers]:
    """Yield what the layers of each tie share."""
    for tie in workload.ties:
        (first, name), *_ = tie.places
        layers = tuple(sorted({workload.index_of(other) for other, _ in tie.places}))
        if len(layers) == 1:
            continue  # within a layer nothing is shared between rows of the costs
        layer = build_layer(workload, workload.index_of(first), bench.device)
        owner, _, attribute = name.rpartition(".")
        tensor: Tensor = getattr(layer.get_submodule(owner), attribute)
        size = bench.rounded(tensor.untyped_storage().nbytes())
        if not isinstance(tensor, nn.Parameter):
            yield TiedLayers(layers=layers, buffer_bytes=size)
            continue
        attach_gradients([tensor])
        before = bench.meter.current_bytes
        optimizer = LayerOptimizer([tensor], workload.optimizer)
        optimizer.step(1.0)
        optimizer_bytes = bench.meter.current_bytes - before
        del optimizer  # or it would go, and be counted, while the next one is made
        yield TiedLayers(
            layers=layers,
            parameter_bytes=size,
            gradient_bytes=size,
            optimizer_bytes=optimizer_bytes,
        )


if __name__ == "__main__":
    sys.exit(main())
