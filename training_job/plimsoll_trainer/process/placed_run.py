"""A rank of a plan that places operators: its work, its steps, its evaluations.

In: a plan with a placement, and the workload. Out: what `run` and `session` need in the
place of a `Trainer`. Every rank captures the graph again and compares its digest with
the plan's, so a profile need not be at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from plimsoll_planner.graph.placed import placed_of
from plimsoll_planner.graph.transfers import Placed
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.placement_plan import PlacementPlan
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.batches import make_batch
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.equal_replicas import require_equal
from plimsoll_trainer.engine.loading import DirectLoader, Key, Loader
from plimsoll_trainer.engine.pass_timing import PassTimer
from plimsoll_trainer.engine.tensor_sums import Summer
from plimsoll_trainer.engine.training import OnPhase, StepResult
from plimsoll_trainer.engine.world import World
from plimsoll_trainer.epochs import in_steps_of
from plimsoll_trainer.errors import OtherWorkloadError
from plimsoll_trainer.evaluation import Evaluation
from plimsoll_trainer.placed.capture import capture, capture_evaluation
from plimsoll_trainer.placed.checkpoint import PlacedState
from plimsoll_trainer.placed.evaluating import PlacedEvaluation, mean_loss, sizes_of
from plimsoll_trainer.placed.graph import CapturedGraph
from plimsoll_trainer.placed.profile import AGAIN, profile_of, require_same
from plimsoll_trainer.placed.training import PlacedTrainer, Ports
from plimsoll_trainer.placed.workload import (
    MakeTensors,
    PlacedWorkload,
    Tensors,
    flat_batch,
    of_chain,
)
from plimsoll_trainer.process.assignment import check_optimizer, check_profile
from plimsoll_trainer.process.steps import Built
from plimsoll_trainer.workload import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedAssignment:
    """Work of the ranks of a placement; `engine.world` has their order."""

    workload: Workload
    """As it was loaded, in steps of the global batch."""
    placed_workload: PlacedWorkload
    graph: CapturedGraph
    profile: GraphProfile
    """Of the graph, without costs."""
    placed: Placed
    num_replicas: int
    micro_batch: int
    num_micro_batches: int
    num_parts: int = 1
    schedule: Schedule = Schedule.PLACED

    @property
    def num_stages(self) -> int:
        """Devices of a replica."""
        return self.placed.num_devices

    @property
    def global_batch_size(self) -> int:
        """Samples of one step."""
        return self.num_replicas * self.micro_batch * self.num_micro_batches

    def trainer(self, world: World, ports: Ports) -> PlacedTrainer:
        """Build what stands on a rank, in the state before the first step."""
        return PlacedTrainer(
            self.placed_workload,
            self.graph,
            profile=self.profile,
            placed=self.placed,
            world=world,
            micro_batch=self.micro_batch,
            num_micro_batches=self.num_micro_batches,
            ports=ports,
        )


def assign_placed(
    plan: HybridPlan,
    placement: PlacementPlan,
    workload: Workload,
    profiles: Iterable[ModelProfile] = (),
) -> PlacedAssignment:
    """Work of the ranks of a plan with a placement.

    Raises:
        WorkloadError: the workload cannot be captured.
        OtherWorkloadError: its graph is not the one that was placed.
        InvalidInputError: the placement breaks the graph's order.
    """
    workload = in_steps_of(workload, plan.global_batch_size)
    check_optimizer(plan.optimizer_mode, workload, plan.offers[0].device_kind)
    known = [one for one in profiles if one.fingerprint == plan.fingerprint]
    for one in known:
        check_profile(one, workload)
    placed_workload = of_chain(workload)
    graph = capture(placed_workload, plan.micro_batch)
    profile = profile_of(graph)
    if profile.graph_digest != placement.graph_digest:
        raise other_graph(graph, plan.micro_batch, known)
    return PlacedAssignment(
        workload=workload,
        placed_workload=placed_workload,
        graph=graph,
        profile=profile,
        placed=placed_of(placement, profile),
        num_replicas=plan.stages[0].data_degree,
        micro_batch=plan.micro_batch,
        num_micro_batches=plan.num_micro_batches,
    )


def other_graph(
    graph: CapturedGraph, micro_batch: int, profiles: Iterable[ModelProfile]
) -> OtherWorkloadError:
    """Error for a graph that was not placed; names a node where a profile knows it."""
    try:
        for one in (one for profile in profiles for one in profile.graphs):
            if one.micro_batch == micro_batch:
                require_same(graph, one.graph)
    except OtherWorkloadError as error:
        return error
    return OtherWorkloadError(
        f"the graph of the workload, of {len(graph.nodes)} operators, is another one "
        f"than when it was placed: {AGAIN}"
    )


class PlacedSteps:
    """Steps of a rank of a placement; see `steps.Steps`."""

    def __init__(
        self, assignment: PlacedAssignment, world: World, on_phase: OnPhase
    ) -> None:
        """Build what stands on this rank, in the state before the first step."""
        self.workload, self.world = assignment.workload, world
        self.micro_batch = assignment.micro_batch
        self.num_micro_batches = assignment.num_micro_batches
        self.loader: Loader = DirectLoader(assignment.workload)
        self.timer = PassTimer(world.device)
        """Operators wait for values of other ranks, so nothing is timed."""
        ports = Ports(take=self._take, on_phase=on_phase)
        self.trainer = assignment.trainer(world, ports)

    def _take(self, step: int, first: int, count: int) -> Tensors:
        """Samples of this rank, from whoever makes them."""
        return flat_batch(self.workload, self.loader.take(step, first, count))

    @property
    def takes_samples(self) -> bool:
        """See `Steps`."""
        return self.trainer.takes_samples

    def keys(self, steps: range) -> Iterator[Key]:
        """See `Steps`."""
        for step in steps if self.takes_samples else ():
            for place in range(self.num_micro_batches):
                yield step, self.trainer.first_sample(place), self.micro_batch

    def run_step(self, step: int) -> StepResult:
        """See `Steps`."""
        found = self.trainer.run_step(step)
        count = self.num_micro_batches * self.world.num_replicas
        with host_memory():
            counted = torch.tensor(float(count))
        return StepResult(
            loss=found.loss, count=counted, gradient_norm=found.gradient_norm
        )


def build_placed(
    assignment: PlacedAssignment, world: World, on_phase: OnPhase
) -> Built:
    """Build what a rank of a placement runs."""
    steps = PlacedSteps(assignment, world, on_phase)
    return Built(
        steps=steps,
        state=PlacedState(steps.trainer),
        evaluate=PlacedEvaluations(steps.trainer, assignment.workload),
        check_replicas=partial(check_placed_replicas, steps.trainer),
    )


def check_placed_replicas(trainer: PlacedTrainer, control: Control) -> None:
    """Refuse to train where replicas have built other states; all ranks call this.

    Raises:
        UnequalReplicasError: names the first tensor that differs, and two ranks.
    """
    summer = Summer(trainer.world.device)
    is_shared = trainer.world.num_replicas > 1
    states = trainer.states if is_shared else []
    sums = {("", one.name): summer.sum_of(one.tensor) for one in states}
    require_equal(sums, {}, trainer.world, control)


class PlacedEvaluations:
    """Evaluations of a placed model, which is captured for them before it trains.

    Raises:
        WorkloadError: the model cannot be captured as it evaluates.
    """

    def __init__(self, trainer: PlacedTrainer, workload: Workload) -> None:
        """Capture passes of the evaluation that the workload asks for, if it does."""
        self._trainer, self._workload = trainer, workload
        self._passes: dict[int, PlacedEvaluation] = {}
        """By their number of samples."""
        if workload.evaluation is None:
            return
        evaluated = replace(trainer.workload, batch=self._samples(workload.evaluation))
        for size in sizes_of(workload.evaluation.number, trainer.micro_batch):
            graph = capture_evaluation(evaluated, size)
            self._passes[size] = PlacedEvaluation(trainer, graph, size)

    def __call__(self, evaluation: Evaluation, step: int) -> tuple[Tensor, Tensor]:
        """The mean loss on the samples of an evaluation, and their number."""
        del step  # a model that evaluates draws no numbers
        number, samples = evaluation.number, self._samples(evaluation)
        loss = mean_loss(self._trainer, self._passes, samples, number)
        with host_memory():
            return torch.tensor(loss, dtype=torch.float64), torch.tensor(float(number))

    def _samples(self, evaluation: Evaluation) -> MakeTensors:
        """Samples of an evaluation."""
        workload = replace(self._workload, batch=evaluation.batch)

        def make(step: int, first: int, count: int) -> Tensors:
            return flat_batch(workload, make_batch(workload, step, first, count))

        return make
