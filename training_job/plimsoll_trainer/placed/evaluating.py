"""The loss of a placed model on other data: forward passes alone.

The model that evaluates is another graph, without dropout and with the statistics that
norms have gathered. Its tensors stand where training has them; other nodes follow them
(a heuristic, of which nothing is promised but that it runs):

    reads a parameter        where that is
    reads others             where the largest value that it reads is
    an input of the batch    where it is read first

Replicas take turns, and a sum over all ranks is the same for each of them: where norms
gather statistics, replicas hold different ones.

    pass      0   1   2
    replica   0   1   0       with two replicas

In: a `PlacedTrainer` between two steps. Out: the loss. All ranks call `mean_loss`
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch.distributed as dist

from plimsoll_planner.graph.actions import actions_of
from plimsoll_planner.graph.arrays import Ints, graph_of
from plimsoll_planner.graph.transfers import Placed
from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.placed.graph import CapturedGraph, Kind, require_device
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
        """Place the graph of `capture_evaluation` for so many samples.

        Raises:
            WorkloadError: this device does not have an operator of the graph.
        """
        require_device(graph, trainer.world.device)
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

    def loss(self, batch: MakeTensors, first: int) -> float:
        """Mean loss of the samples from one on; 0 on ranks that do not compute it."""
        end = 2 * len(self._graph.nodes)
        kept = [one for one in self._actions if one.moment == end]
        body = [one for one in self._actions if one.moment < end]
        with host_memory():
            made = batch(0, first, self._micro_batch) if self._takes_samples else ()
        given = Given(tensors=made, step=0, first_sample=first)
        self._interpreter.run(body, given)
        found = self._interpreter.value(self._graph.loss)
        loss = 0.0 if found is None else float(found)
        del found
        self._interpreter.run(kept, given)
        return loss


def mean_loss(
    trainer: PlacedTrainer,
    passes: Mapping[int, PlacedEvaluation],
    batch: MakeTensors,
    num_samples: int,
) -> float:
    """Mean loss of so many samples, the same on every rank.

    Args:
        trainer: of this rank, between two steps.
        passes: by their number of samples, as `sizes_of` has them.
        batch: makes the samples.
        num_samples: all together.
    """
    world, most = trainer.world, trainer.micro_batch
    with host_memory():
        sums = trainer.zeros(world.num_replicas)
    turns = range(world.replica * most, num_samples, world.num_replicas * most)
    for first in turns:
        count = min(most, num_samples - first)
        sums[world.replica] += passes[count].loss(batch, first) * count
    with host_memory():
        dist.all_reduce(sums)
        return float(sums.sum()) / num_samples


def sizes_of(num_samples: int, micro_batch: int) -> set[int]:
    """Numbers of samples that pass at a time: micro-batches, and what is left."""
    whole, rest = divmod(num_samples, micro_batch)
    return ({micro_batch} if whole else set()) | ({rest} if rest else set())


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
