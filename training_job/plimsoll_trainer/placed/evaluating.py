"""The loss of a placed model on other data: forward passes alone.

The model that evaluates is another graph, without dropout and with the statistics that
norms have gathered. Its tensors stand where training has them; other nodes follow them
(a heuristic, of which nothing is promised but that it runs):

    reads a parameter        where that is
    reads others             where the largest value that it reads is
    an input of the batch    where it is read first

In: a `PlacedTrainer` between two steps. Out: the loss. All ranks call `run` together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch.distributed as dist

from plimsoll_planner.graph.actions import actions_of
from plimsoll_planner.graph.arrays import Ints, graph_of
from plimsoll_planner.graph.transfers import Placed
from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.placed.graph import CapturedGraph, Kind
from plimsoll_trainer.placed.interpreter import Given, Interpreter
from plimsoll_trainer.placed.profile import profile_of
from plimsoll_trainer.placed.training import PlacedTrainer, inputs
from plimsoll_trainer.placed.transport import GroupTransport
from plimsoll_trainer.placed.workload import MakeTensors


class PlacedEvaluation:
    """Passes of a trainer's model for its loss."""

    def __init__(
        self, trainer: PlacedTrainer, graph: CapturedGraph, micro_batch: int
    ) -> None:
        """Place the graph of `capture_evaluation` for so many samples."""
        self._trainer, self._micro_batch = trainer, micro_batch
        self._graph, world = graph, trainer.world
        placed = following(graph, trainer)
        profile = profile_of(graph)
        self._actions = actions_of(placed, profile)[world.stage]
        here = placed.device.tolist()
        self._takes_samples = any(here[node] == world.stage for node in inputs(graph))
        by_name = {one.name: one.tensor.detach() for one in trainer.states}
        self._interpreter = Interpreter(
            *(graph, GroupTransport(world), world.device, trainer.workload.seed),
            states={
                state.node: by_name[state.name]
                for state in graph.states
                if state.name in by_name
            },
            gradients={},
        )

    def run(self, batch: MakeTensors, num_micro_batches: int) -> float:
        """Mean loss of some micro-batches of other data; replicas run them all."""
        total = 0.0
        end = 2 * len(self._graph.nodes)
        kept = [one for one in self._actions if one.moment == end]
        body = [one for one in self._actions if one.moment < end]
        for index in range(num_micro_batches):
            first = index * self._micro_batch
            with host_memory():
                made = batch(0, first, self._micro_batch) if self._takes_samples else ()
            given = Given(tensors=made, step=0, first_sample=first)
            self._interpreter.run(body, given)
            loss = self._interpreter.value(self._graph.loss)
            total += 0.0 if loss is None else float(loss)
            del loss
            self._interpreter.run(kept, given)
        with host_memory():
            sums = self._trainer.zeros(1)
            sums[0] = total
            dist.all_reduce(sums, group=self._trainer.world.pipeline_group)
            return float(sums[0]) / num_micro_batches


def following(graph: CapturedGraph, trainer: PlacedTrainer) -> Placed:
    """The graph of evaluation, where its parameters are."""
    where = {
        state.name: int(trainer.placed.device[state.node])
        for state in trainer.graph.states
    }
    groups = np.array(graph.groups)
    device = np.full(int(groups.max()) + 1, -1)
    for state in graph.states:
        device[groups[state.node]] = where[state.name]
    has_state = device >= 0
    for index, node in enumerate(graph.nodes):
        if node.kind is not Kind.INPUT and device[groups[index]] < 0:
            choose(graph, index, groups, device, lambda group: bool(has_state[group]))
    for index, node in enumerate(graph.nodes):
        for source in node.inputs:
            if device[groups[source]] < 0:
                device[groups[source]] = max(device[groups[index]], 0)
    return Placed(
        graph=graph_of(profile_of(graph)),
        device=np.maximum(device, 0)[groups],
        place=np.arange(len(graph.nodes)),
        num_devices=trainer.placed.num_devices,
        window=1,
    )


def choose(
    graph: CapturedGraph,
    index: int,
    groups: Ints,
    device: Ints,
    has_state: Callable[[int], bool],
) -> None:
    """Give the group of a node the device of what it reads."""
    found = [
        source for source in graph.nodes[index].inputs if device[groups[source]] >= 0
    ]
    if not found:
        return

    def weight(source: int) -> tuple[bool, int]:
        forms = graph.nodes[source].forms
        size = sum(form.num_bytes for form in forms if form is not None)
        return has_state(int(groups[source])), size

    device[groups[index]] = device[groups[max(found, key=weight)]]
