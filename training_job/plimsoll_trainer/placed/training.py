"""One rank of a placed graph: its states, and what happens in a step.

    M micro-batches, one after the other     the rank's actions, `interpreter`
    add gradients over replicas              in place, parameter by parameter
    divide by M D, clip by the norm of all   squares summed in the order of the model
    step, parameter by parameter             gradients are zero afterwards

So losses, norms and weights are the same to the bit for every placement, unless kernels
compute otherwise from what was sent without its gaps (`transport`). The few numbers
that ranks exchange besides, losses and squares, are not counted.

In: a workload, its graph, the profile that was placed, the placement, the ranks. Called
by whoever runs a `PlacementPlan`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from plimsoll_planner.graph.actions import Action, Step, actions_of
from plimsoll_planner.graph.transfers import Placed
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.layer_optimizer import scale, squared_norm
from plimsoll_trainer.engine.training import NORM_OFFSET, OnPhase
from plimsoll_trainer.engine.world import World
from plimsoll_trainer.errors import PlanMismatchError
from plimsoll_trainer.placed.graph import CapturedGraph, require_device
from plimsoll_trainer.placed.interpreter import Given, Interpreter
from plimsoll_trainer.placed.profile import require_same
from plimsoll_trainer.placed.states import owned_states
from plimsoll_trainer.placed.transport import GroupTransport, Transport, as_row
from plimsoll_trainer.placed.workload import MakeTensors, PlacedWorkload


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedStep:
    """Result of a step, alike on every rank: scalars in fp64, in the host's memory."""

    loss: Tensor
    """Mean over the global batch."""
    gradient_norm: Tensor
    """Before clipping."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """Where a rank gets samples from, how it sends, and who hears of its phases."""

    take: MakeTensors | None = None
    """Makes its samples; None: the workload does."""
    transport: Callable[[World], Transport] = GroupTransport
    """Moves values between ranks."""
    on_phase: OnPhase = lambda _: None
    """Called when a phase has ended."""


DIRECT = Ports()
"""Samples of the workload, sent between real ranks."""


class PlacedTrainer:
    """Builds one rank's share and runs steps; all ranks call each method together.

    Raises:
        OtherWorkloadError: the graph is not the one that was placed.
        PlanMismatchError: the placement is for another number of devices.
        WorkloadError: this device does not have an operator of the graph.
    """

    def __init__(
        self,
        workload: PlacedWorkload,
        graph: CapturedGraph,
        *,
        profile: GraphProfile,
        placed: Placed,
        world: World,
        micro_batch: int,
        num_micro_batches: int = 1,
        ports: Ports = DIRECT,
    ) -> None:
        """Build what stands on this rank, in the state before the first step."""
        require_same(graph, profile)
        require_device(graph, world.device)
        if placed.num_devices != world.num_stages:
            raise PlanMismatchError(
                f"the placement is for {placed.num_devices} devices, and a replica has "
                f"{world.num_stages} ranks: start as many, or place the graph again"
            )
        self.workload, self.graph, self.world = workload, graph, world
        self.placed, self.profile = placed, profile
        self.micro_batch, self.num_micro_batches = micro_batch, num_micro_batches
        self._take, self._on_phase = ports.take or workload.batch, ports.on_phase
        devices = placed.device.tolist()
        self.states = owned_states(
            workload, graph, lambda node: devices[node] == world.stage, world.device
        )
        """Of this rank."""
        actions = actions_of(placed, profile)[world.stage]
        end = 2 * len(graph.nodes)
        self._body = [action for action in actions if action.moment < end]
        self._end = [one for one in actions if one.moment == end]
        self.takes_samples = any(devices[node] == world.stage for node in inputs(graph))
        self._interpreter = Interpreter(
            *(graph, ports.transport(world), world.device, workload.seed),
            states={one.node: one.tensor.detach() for one in self.states},
            gradients={
                one.place: one.gradient
                for one in self.states
                if one.gradient is not None
            },
        )
        self._on_phase(Phase.BUILD)

    @property
    def trained(self) -> list[Tensor]:
        """Gradients of this rank, in the order of the model."""
        return [one.gradient for one in self.states if one.gradient is not None]

    def run_step(self, step: int) -> PlacedStep:
        """Train on the global batch of one step."""
        with host_memory():
            sums = self.zeros(self.world.num_replicas)
        for index in range(self.num_micro_batches):
            self._interpreter.run(self._body, self._given(step, index))
            self._add_loss(sums)
            if index < self.num_micro_batches - 1:
                self._free_kept()
        self._on_phase(Phase.BACKWARD)
        self.reduce_gradients()
        with host_memory():
            mean = self.mean_loss(sums)
            norm = self.clip_gradients()
        self._on_phase(Phase.GRADIENT_NORM)
        factor = self.workload.learning_rate_factor(step)
        for state in self.states:  # in the order of the actions of kind STEP
            if state.optimizer is not None:
                state.optimizer.step(factor)
        self._free_kept()
        self._on_phase(Phase.OPTIMIZER_STEP)
        return PlacedStep(loss=mean, gradient_norm=norm)

    def _add_loss(self, sums: Tensor) -> None:
        """Add the loss of a micro-batch to those of this replica, where it is made."""
        loss = self._interpreter.value(self.graph.loss)
        if loss is not None:
            with host_memory():
                sums[self.world.replica] += loss.double()

    def first_sample(self, micro_batch: int) -> int:
        """First sample of a micro-batch of this replica in the global batch."""
        index = self.world.replica * self.num_micro_batches + micro_batch
        return index * self.micro_batch

    def _given(self, step: int, index: int) -> Given:
        """Samples of a micro-batch, if this rank needs any."""
        first = self.first_sample(index)
        with host_memory():
            made = (
                self._take(step, first, self.micro_batch) if self.takes_samples else ()
            )
        return Given(tensors=made, step=step, first_sample=first)

    def _free_kept(self) -> None:
        """Let go of what is kept to the end of a micro-batch."""
        kept: list[Action] = [one for one in self._end if one.step is not Step.STEP]
        self._interpreter.run(kept, Given(tensors=(), step=0, first_sample=0))

    @torch.no_grad()
    def reduce_gradients(self) -> None:
        """Add gradients of all replicas up, and turn sums into means."""
        if self.world.num_replicas > 1:
            for gradient in self.trained:
                dist.all_reduce(as_row(gradient), group=self.world.data_group)
        count = self.num_micro_batches * self.world.num_replicas
        if count > 1:
            with host_memory():
                scale(self.trained, 1.0 / count)

    def mean_loss(self, sums: Tensor) -> Tensor:
        """Mean over all micro-batches of all replicas, summed in their order."""
        dist.all_reduce(sums)
        return sums.sum() / (self.num_micro_batches * self.world.num_replicas)

    @torch.no_grad()
    def clip_gradients(self) -> Tensor:
        """Scale gradients so that their norm over all ranks is within the limit.

        Each parameter's square has a place of its own, and others add zeros, which is
        exact: so the norm does not depend on the placement.
        """
        squares = self.zeros(len(self.graph.states))
        for state in self.states:
            if state.gradient is not None:
                found = squared_norm([state.gradient], self.world.device)
                squares[state.place] = found
        dist.all_reduce(squares, group=self.world.pipeline_group)
        norm = squares.sum().sqrt()
        most = self.workload.max_gradient_norm
        if most is not None:
            scale(self.trained, (most / (norm + NORM_OFFSET)).clamp(max=1.0))
        return norm

    def zeros(self, count: int) -> Tensor:
        """Numbers that ranks add up."""
        return torch.zeros(count, dtype=torch.float64, device=self.world.device)


def inputs(graph: CapturedGraph) -> list[int]:
    """Nodes that a batch gives."""
    return [node for node in graph.inputs if node >= 0]
