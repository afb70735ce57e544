"""Replays a rank of a placement: its actions and optimizers, on tensors without data.

As `rank_replay` does for stages: the process is one rank of a group that has no other
members, nothing is sent, and what real sends and receives hold is held. The graph is
captured again, so this is a count of what its operators allocate, and not of what the
profile says. One micro-batch stands for any number of them, which hold the same.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import Phase
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_trainer.engine.world import World, join_world
from plimsoll_trainer.placed.graph import CapturedGraph, Form
from plimsoll_trainer.placed.training import Ports
from plimsoll_trainer.placed.transport import memory_for, packed
from plimsoll_trainer.placed.workload import MakeTensors, Tensors
from plimsoll_trainer.process.placed_run import PlacedAssignment
from plimsoll_trainer.torch_internals.pipeline import single_process

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedReplayJob:
    """Job that all ranks of a placement share."""

    assignment: PlacedAssignment
    device_kind: DeviceKind


class SilentTransport:
    """Holds what sends and receives hold, and moves nothing."""

    def __init__(self, world: World, fill: Callable[[Tensor], None]) -> None:
        """Begin with nothing under way; `fill` gives what is received its numbers."""
        self._device, self._fill = world.device, fill
        self._underway: dict[tuple[int, int], Tensor] = {}

    def send(self, node: int, value: Tensor, peer: int) -> None:
        """Hold the value, or the copy without gaps that is sent."""
        is_dense = Form.of(value).is_dense
        self._underway[node, peer] = value if is_dense else packed(value)

    def receive(self, node: int, form: Form, peer: int) -> Tensor:
        """Hold memory for a value."""
        self._underway[node, peer] = value = memory_for(form, self._device)
        self._fill(value)
        return value

    def end(self, node: int, peer: int) -> None:
        """Let go of it."""
        del self._underway[node, peer]


silent = partial(SilentTransport, fill=lambda _: None)
"""Makes one that leaves numbers as they are."""


def without_numbers(graph: CapturedGraph) -> CapturedGraph:
    """The same graph, whose constants are tensors without data."""
    return replace(
        graph,
        nodes=tuple(
            node
            if node.constant is None
            else replace(node, constant=memory_for(node.form, CPU))
            for node in graph.nodes
        ),
    )


def samples_like(graph: CapturedGraph) -> MakeTensors:
    """A function that makes batches of the right shape, without values."""

    def make(step: int, first: int, count: int) -> Tensors:
        del step, first, count
        return tuple(
            memory_for(graph.nodes[node].form, CPU) if node >= 0 else torch.empty(0)
            for node in graph.inputs
        )

    return make


def replay_device(job: PlacedReplayJob, device: int) -> dict[Phase, int]:
    """Peak of tensors in each phase of a steady step, bytes; ranks of it are alike."""
    work, peaks = job.assignment, dict[Phase, int]()
    place, num_ranks = device * work.num_replicas, work.num_stages * work.num_replicas
    with (
        single_process(place, num_ranks),
        open_bench(job.device_kind, Source.TRACED) as bench,
    ):

        def read(phase: Phase) -> None:
            peaks[phase] = bench.meter.peak_bytes
            bench.meter.reset_peak()

        lone = replace(work, graph=without_numbers(work.graph), num_micro_batches=1)
        trainer = lone.trainer(
            join_world(work.num_stages, work.num_replicas, CPU),
            Ports(take=samples_like(work.graph), transport=silent, on_phase=read),
        )
        trainer.run_step(0)  # which brings optimizer states into being
        gc.collect()
        peaks.clear()
        bench.meter.reset_peak()
        trainer.run_step(1)
        del trainer
    gc.collect()
    return peaks
