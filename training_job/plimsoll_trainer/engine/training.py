"""One rank of a training job: its stage, its schedule, and what happens in a step.

    forward and backward of M micro-batches     torch.distributed.pipelining
    add gradients over replicas and copies      in place, layer by layer
    divide by what counts, clip by the norm of all ranks
    step the optimizer, layer by layer

A backward pass starts from the micro-batch's own loss, a mean or a sum, and gradients
are divided once, by the count of the whole step: M * D means, or what the losses that
are sums say. So no count is needed before its micro-batch has run. Sums of many tokens
are no danger to bf16, which has the exponents of fp32. Where gradients are computed in
fp16 the loss is scaled, and a step that overflows is left out (`loss_scale`).

Data parallelism is a plain all-reduce of the gradients where they lie. It equals what
torch's `replicate` computes and holds nothing on top, while `replicate` keeps a second
copy of all parameters (docs/decisions/0011). Where replicas divide the optimizer state,
each reduces, steps on and spreads its own slice, in place too (docs/decisions/0024).
Where they divide gradients or parameters as well, each pass of a layer gathers it and
reduces its gradients (`gathered_layers`).
Where the optimizer is on the host, gradients of all layers go there first, and
parameters come back layer by layer (docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.boundaries import Boundaries, cast_inputs
from plimsoll_trainer.engine.collectives import add_parts
from plimsoll_trainer.engine.counting_stage import build_schedule
from plimsoll_trainer.engine.flat_buffers import FlatBuffer, Share
from plimsoll_trainer.engine.host_link import HostLink, rank_threads
from plimsoll_trainer.engine.host_optimizer import HostOptimizer
from plimsoll_trainer.engine.layer_optimizer import squared_norm
from plimsoll_trainer.engine.loading import DirectLoader, Key, Loader
from plimsoll_trainer.engine.loss_scale import is_finite, loss_scale_of
from plimsoll_trainer.engine.pass_timing import PassTimer
from plimsoll_trainer.engine.shared_tensors import (
    add_gradients,
    counted_here,
    shared_tensors,
    spread_values,
)
from plimsoll_trainer.engine.split_tensors import is_split, parameters_here
from plimsoll_trainer.engine.stage import StageSlice, build_stage
from plimsoll_trainer.engine.trained_layer import TrainedLayer
from plimsoll_trainer.engine.world import World
from plimsoll_trainer.epochs import in_steps_of
from plimsoll_trainer.torch_internals.pipeline import run_micro_batches
from plimsoll_trainer.workload import Workload

NORM_OFFSET = 1e-6
"""Against division by zero, as in torch.nn.utils.clip_grad_norm_."""

OnPhase = Callable[[Phase], None]
"""Called when a phase has ended, so that its peak can be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """Result of a step, alike on every rank: scalars that are still on the device."""

    loss: Tensor
    """Mean over what counts of the global batch."""
    count: Tensor
    """Of the global batch; no training unless it is a number above 0."""
    gradient_norm: Tensor | None
    """Over all layers, before clipping; None where it is not clipped or judged."""
    loss_scale: float | None = None
    """That gradients were multiplied with on their way; None where none are."""
    is_left_out: bool = False
    """Whether gradients were not finite, so that nothing was stepped on."""


class Trainer:
    """Builds one rank's share and runs steps; all ranks call each method together."""

    def __init__(
        self,
        workload: Workload,
        *,
        slices: Sequence[StageSlice],
        boundaries: Boundaries,
        num_micro_batches: int,
        world: World,
        schedule: Schedule = Schedule.ONE_F_ONE_B,
        on_phase: OnPhase = lambda _: None,
    ) -> None:
        """Build the stage, its optimizers and the schedule.

        `slices` are the layers of every stage, in order. Each replica has M
        micro-batches in a step. `on_phase` is called when a phase has ended.
        """
        num_samples = boundaries.targets.shape[0] * num_micro_batches
        workload = in_steps_of(workload, num_samples * world.num_replicas)
        self.workload = workload
        self.world = world
        self.slices = slices
        self.part = slices[world.stage]
        self.loss_scale = loss_scale_of(workload)
        """Of the next step, alike on all ranks."""
        if self.part.sequence_parallel:
            boundaries = boundaries.in_parts(workload, world.num_parts)
        self.boundaries = boundaries
        """Of this rank."""
        self.micro_batch = boundaries.targets.shape[0]
        self.num_micro_batches = num_micro_batches
        self.loader: Loader = DirectLoader(workload)
        """Of the samples of this rank; another one may take its place."""
        self.on_phase = on_phase
        self.share = Share(
            replica=world.replica,
            num_replicas=world.num_replicas,
            group=world.data_group,
            parts=world.tensor_group,
        )
        """Of this replica, whatever is divided."""
        self.link = HostLink(world.device) if self.part.uses_host else None
        """To the host, if something is kept there."""
        if self.part.steps_on_host:
            torch.set_num_threads(rank_threads(world.device))
        self.stage = build_stage(
            *(workload, self.part, world.device, boundaries.given_back),
            *(self.share, world.tensor_mesh, self.link),
        )
        self.shared = shared_tensors(workload, slices, self.stage, world)
        spread_values(self.shared)
        self.trained = dict(self.trained_layers())
        self.kind = schedule
        self.timer = PassTimer(world.device)
        """Of the passes of this rank."""
        self.schedule = self.build_schedule()
        self.on_phase(Phase.BUILD)

    def build_schedule(self) -> PipelineScheduleSingle:
        """Schedule of the stage as it is."""
        return build_schedule(
            *(self.stage, self.part, self.boundaries, self.num_micro_batches),
            world=self.world,
            schedule=self.kind,
            timer=self.timer,
        )

    @property
    def divides(self) -> bool:
        """Whether replicas divide any layer."""
        return any(layer.is_divided for layer in self.trained.values())

    @property
    def host_bytes(self) -> int:
        """Most bytes of tensors on the host, after a step."""
        layers = (layer.optimizer for layer in self.trained.values())
        on_host = [one for one in layers if isinstance(one, HostOptimizer)]
        cast = max((one.cast_bytes for one in on_host), default=0)
        pool = self.stage.pool
        offloaded = 0 if pool is None else pool.num_bytes
        return sum(one.held_bytes for one in on_host) + cast + offloaded

    def run_step(self, step: int) -> StepResult:
        """Train on the global batch of one step."""
        losses = self.run_micro_batches(step)
        self.on_phase(Phase.BACKWARD)
        loss, count = self.reduce_gradients(losses)
        norm = self.clip_gradients()
        self.on_phase(Phase.GRADIENT_NORM)
        scale, overflows = self.follow_scale(norm)
        if overflows:
            self.leave_out()
        else:
            self.step_layers(self.workload.learning_rate_factor(step))
        self.on_phase(Phase.OPTIMIZER_STEP)
        return StepResult(
            loss=loss,
            count=count,
            gradient_norm=norm,
            loss_scale=scale,
            is_left_out=overflows,
        )

    def follow_scale(self, norm: Tensor | None) -> tuple[float | None, bool]:
        """Scale of this step, and whether it overflows; the next one's follows."""
        if self.loss_scale is None or norm is None:
            return None, False
        scale, overflows = self.loss_scale.value, not is_finite(norm)
        self.loss_scale.follow(overflows=overflows)
        return scale, overflows

    def leave_out(self) -> None:
        """Let go of all gradients, without a step."""
        for layer in self.trained.values():
            layer.leave_out()

    def step_layers(self, learning_rate_factor: float) -> None:
        """Step all optimizers, layer by layer."""
        for layer in self.trained.values():
            layer.begin()
        for layer in self.trained.values():
            layer.step(learning_rate_factor)
        spread_values([one for one in self.shared if one.homes_differ])

    def run_micro_batches(self, step: int) -> list[Tensor]:
        """Run all micro-batches; return their losses, on the last stage."""
        self.stage.step = step
        self.stage.begin_step()
        if self.loss_scale is not None:
            self.stage.loss_scale = self.loss_scale.value
        self.stage.count.zero_()
        inputs, targets = self.load_micro_batches(step)
        losses: list[Tensor] = []
        run_micro_batches(self.schedule, inputs, targets, losses)
        return [loss.detach() for loss in losses]

    def first_sample(self, micro_batch: int) -> int:
        """First sample of a micro-batch of this replica in the global batch."""
        index = self.world.replica * self.num_micro_batches + micro_batch
        return index * self.micro_batch

    def load_micro_batches(
        self, step: int
    ) -> tuple[list[tuple[Tensor, ...]], list[dict[str, Tensor]]]:
        """Make this replica's samples; only the ends of the pipeline keep any."""
        inputs: list[tuple[Tensor, ...]] = [()] * self.num_micro_batches
        targets: list[dict[str, Tensor]] = [{}] * self.num_micro_batches
        if not self.takes_samples:
            return inputs, targets
        for place in range(self.num_micro_batches):
            x, y = self.loader.take(step, self.first_sample(place), self.micro_batch)
            if self.world.is_first:
                with host_memory():
                    x = cast_inputs(x, self.workload)
                inputs[place] = tuple(map(self.on_device, x))
            if self.world.is_last:
                targets[place] = {"targets": self.on_device(y)}
        return inputs, targets

    @property
    def takes_samples(self) -> bool:
        """Whether this rank needs inputs or targets."""
        return self.world.is_first or self.world.is_last

    def keys(self, steps: range) -> Iterator[Key]:
        """Yield the micro-batches that this rank takes in some steps, in order."""
        for step in steps if self.takes_samples else ():
            for place in range(self.num_micro_batches):
                yield step, self.first_sample(place), self.micro_batch

    def on_device(self, tensor: Tensor) -> Tensor:
        """Copy a tensor to the device, without the rest that it may be a view of."""
        is_async = self.loader.is_shared
        return tensor.to(self.world.device, non_blocking=is_async, copy=True)

    def trained_layers(self) -> Iterator[tuple[str, TrainedLayer]]:
        """Yield layers that train, by index; a shared tensor belongs to one of them."""
        shared = {id(one.tensor) for one in self.shared}
        for name, buffers in self.stage.flat.items():
            if trained := self.trained_layer(name, buffers, shared):
                yield name, trained

    def trained_layer(
        self, name: str, buffers: Sequence[FlatBuffer], shared: Set[int] = frozenset()
    ) -> TrainedLayer | None:
        """One of them, None if nothing of it trains; tensors of `shared` are by id."""
        own = [p for buffer in buffers for p in buffer.parameters]
        if not own:
            return None
        return TrainedLayer(
            parameters_here(self.stage.layers[name]),
            buffers,
            self.workload.optimizer,
            self.world.data_group if self.world.num_replicas > 1 else None,
            reduces_whole=any(id(p) in shared for p in own),
            link=self.link if self.part.steps_on_host else None,
            least=self.workload.stepped_dtype,
        )

    @torch.no_grad()
    def reduce_gradients(self, losses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Turn sums over micro-batches into means over the global batch.

        Args:
            losses: of this replica's micro-batches, on the last stage.

        Returns:
            The mean loss and what it is over, on every rank.
        """
        self.add_parts()
        for layer in self.trained.values():
            layer.reduce()
        add_gradients(self.shared)
        total, count = self.sum_over_ranks(losses)
        # Gradients are 0 where nothing counts; `session` refuses such a step.
        factor = torch.where(count > 0, 1 / count, 0.0)
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        self.scale(factor / scale)
        return (total * factor).float(), count

    def add_parts(self) -> None:
        """Add up what each rank of a tensor group found on its part of the sequence.

        Once in a step, in place: few and short ones, such as those of norms.
        """
        for layer in self.trained.values():
            for buffer in layer.buffers:
                if buffer.kept_gradients is None:  # else each pass has done so
                    add_parts(buffer.parameters, self.world.tensor_group)

    def scale(self, factor: Tensor) -> None:
        """Multiply all gradients."""
        for layer in self.trained.values():
            layer.scale(factor)

    def sum_over_ranks(self, losses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Add up losses and counts of all replicas, in their order under every plan.

        Each has a place of its own; ranks without a loss add nothing, which is exact,
        and so do all parts of a loss but the first, which have the same.
        """
        both = torch.zeros(
            (2, self.world.num_replicas), dtype=torch.float64, device=self.world.device
        )
        if losses and self.world.part == 0:
            total = torch.stack([loss.double() for loss in losses]).sum()
            both[0, self.world.replica] = total
            both[1, self.world.replica] = self.stage.count
        dist.all_reduce(both)
        total, count = both.sum(1)
        return total, count

    @torch.no_grad()
    def clip_gradients(self) -> Tensor | None:
        """Scale all gradients so that their norm over all ranks is within the limit.

        Squares are added up in the order of the chain, so that the norm is the same to
        the bit wherever the chain is cut.
        """
        limit = self.workload.max_gradient_norm
        if limit is None and self.loss_scale is None:
            return None
        squares = self.squared_norms()
        if self.divides:
            dist.all_reduce(squares, group=self.world.data_group)
        if (group := self.world.tensor_group) is not None:
            dist.all_reduce(squares, group=group)
        dist.all_reduce(squares, group=self.world.pipeline_group)
        norm = squares.sum().sqrt()
        if limit is not None:
            self.scale((limit / (norm + NORM_OFFSET)).clamp(max=1.0))
        return norm

    def squared_norms(self) -> Tensor:
        """Squares of all layers' gradients, then of all ties', each in its own place.

        A number counts where it is owned: one that is whole on all replicas on the
        first, if the others are added to it, and one of a tie on its first stage; one
        that all ranks of a tensor group have on the first of them.
        """
        num_layers, device = len(self.workload.layers), self.world.device
        num_places = num_layers + len(self.workload.ties)
        squares = torch.zeros(num_places, dtype=torch.float32, device=device)
        place_of = counted_here(self.workload, self.slices, self.stage, self.world)
        for name, layer in self.trained.items():
            if self.divides and not layer.is_divided and self.world.replica > 0:
                continue
            own = (self.counted(buffer) for buffer in layer.buffers)
            squares[int(name)] = squared_norm(chain.from_iterable(own), device)
            for buffer in layer.buffers:
                for tensor, gradient in buffer.own_shared():
                    if self.world.part > 0 and not is_split(tensor):
                        continue
                    if (place := place_of.get(id(tensor))) is not None:
                        squares[num_layers + place] = squared_norm([gradient], device)
        return squares

    def counted(self, buffer: FlatBuffer) -> Iterator[Tensor]:
        """Yield gradients that are owned here, of parameters that nobody shares.

        A number that all ranks of a tensor group have counts on the first.
        """
        if self.world.num_parts == 1:
            yield buffer.own_alone()
            return
        for tensor, gradient in buffer.alone():
            if self.world.part == 0 or is_split(tensor):
                yield gradient
