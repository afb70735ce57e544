"""The part of a model that one rank holds: its own layers, and nothing else.

Legend: a stage holds the layers first .. end - 1 of the chain. Layers are kept under
their index in the whole chain, so that a tensor has one name under every plan.

    x -> [layer] -> [layer, recomputed] -> ... -> y          sent on
                                           ... -> loss       on the last stage

The loss is computed inside the stage: torch's schedule keeps the output of the last
stage alive through the whole backward pass, and a scalar is cheaper than logits.

What passes from layer to layer is contiguous, activations and gradients alike, wherever
the chain is cut (`passed_on`): a send takes nothing else, and kernels round otherwise
on other strides. A copy, where one is needed, is part of the layer that makes
it, so the profile counts it and every plan computes the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.checkpoint import checkpoint

from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_trainer.engine.built_layer import BuiltLayer, build_trained
from plimsoll_trainer.engine.flat_buffers import WHOLE, FlatBuffer, Share
from plimsoll_trainer.engine.gathered_layers import (
    GatheredLayer,
    gathered_layers,
    let_pass,
)
from plimsoll_trainer.engine.host_link import HostLink
from plimsoll_trainer.engine.loss_scale import scaled
from plimsoll_trainer.engine.offloaded_layers import HostPool, saved_on_host
from plimsoll_trainer.engine.token_pieces import Places, all_places, loss_in_pieces
from plimsoll_trainer.random_keys import random_key, seed_device
from plimsoll_trainer.workload import Loss, SumAndCount, TokenLoss, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSlice:
    """Which layers a rank holds, and how."""

    first_layer: int
    end_layer: int
    recomputed: frozenset[int] = frozenset()
    """Those that it computes twice."""
    offloaded: frozenset[int] = frozenset()
    """Those whose activations are in the host's memory between their passes."""
    offloaded_bytes: int = 0
    """Of these, at most, as planned."""
    sharding: Sharding = Sharding.NONE
    """State that replicas divide."""
    optimizer_home: OptimizerHome = OptimizerHome.DEVICE
    """Memory that the optimizer state lies in."""
    sequence_parallel: bool = False
    """Whether ranks of its tensor group have a part of each sequence between layers."""
    in_flight_cap: int | None = None
    """Most micro-batches that it holds activations of; None: as many as the schedule
    has in flight."""

    @property
    def steps_on_host(self) -> bool:
        """Whether the optimizer is in the memory of the host."""
        return self.optimizer_home is OptimizerHome.HOST

    @property
    def uses_host(self) -> bool:
        """Whether something of the stage is there."""
        return self.steps_on_host or bool(self.offloaded)

    def share(self, of_all: Share) -> Share:
        """Share of a replica in what the slice divides; `of_all` if it were all."""
        of_all = WHOLE if self.sharding is Sharding.NONE else of_all
        return replace(of_all, level=self.sharding)

    def holds(self, layer: int) -> bool:
        """Whether a layer is in the slice."""
        return self.first_layer <= layer < self.end_layer


class Received(torch.autograd.Function):
    """Passes on what a stage received, as a tensor that its first layer may overwrite.

    Torch hands it over as a leaf, and lets nobody overwrite one that needs a gradient.
    The gradient is sent back, which takes contiguous memory.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The same memory."""
        del ctx
        return x.data

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The same gradient, contiguous."""
        del ctx
        return gradients[0].contiguous()


class StageModule(nn.Module):
    """Runs a slice of the chain; returns the loss where the slice ends the chain."""

    def __init__(
        self,
        layers: nn.ModuleDict,
        *,
        built: Mapping[str, BuiltLayer],
        part: StageSlice,
        copies_input: bool,
        loss: Loss | None,
        seed: int,
        device: torch.device,
        link: HostLink | None = None,
    ) -> None:
        """Take layers that are built already, under their indices as names."""
        super().__init__()
        self.layers = layers
        self.built = dict(built)
        """The layers' buffers; what layers of a rank share is in the first one's."""
        self.gathered = gathered_layers(self.flat)
        """Layers that are whole while they are at work alone."""
        self._recomputed, self._offloaded = part.recomputed, part.offloaded
        self.pool = HostPool(link or HostLink(device)) if part.offloaded else None
        self._copies_input = copies_input
        self._loss = loss
        self._last = list(layers)[-1]
        self._seed = seed
        self._device = device
        self.step = 0
        self.first_sample = 0
        """First sample of the current micro-batch in the step's global batch."""
        self.loss_scale: float | None = None
        """What gradients of this step are multiplied with, where that is done."""
        self.count = torch.zeros((), dtype=torch.float64, device=device)
        """Divisor of the sum of the losses so far; see `known_count`."""

    def let_go(self, name: str) -> None:
        """Hold a layer no more."""
        del self.layers[name], self.built[name]
        self.gathered.pop(name, None)

    @property
    def flat(self) -> dict[str, list[FlatBuffer]]:
        """Buffers of each layer."""
        return {name: one.flat for name, one in self.built.items()}

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Run one micro-batch through the slice.

        Args:
            x: inputs of the model, or what the stage before sent.
            targets: on the last stage, what the loss compares with.
        """
        if x.requires_grad:
            x = Received.apply(x)
        if self._copies_input:
            x = x.clone()
        before: GatheredLayer | None = None
        for name, layer in self.layers.items():
            gathered = self.gathered.get(name)
            let_pass(x, before, gathered)
            entered = x
            whole = nullcontext() if gathered is None else gathered.whole()
            with whole, self._saving(name, layer):
                x = self._run(name, layer, x, targets)
            # What is given back gets hooks of its own, which run before those of x.
            x = x.view_as(x) if x is entered and name != self._last else x
            before = gathered
        let_pass(x, before, None)
        return x

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Within it passes are for their loss alone.

        No layer drops out, changes its statistics or keeps anything for a backward
        pass; a loss that is a mean counts as many as it is the mean of.
        """
        modes = [(module, module.training) for module in self.modules()]
        loss = self._loss
        self.eval()
        if loss is not None and not isinstance(loss, TokenLoss):
            self._loss = partial(summed_over_samples, loss)
        try:
            with torch.no_grad():
                yield
        finally:
            self._loss = loss
            for module, is_training in modes:
                module.training = is_training

    def _saving(self, name: str, layer: nn.Module) -> AbstractContextManager[None]:
        """Within it, a layer saves its activations in the memory that is planned."""
        is_kept = int(name) not in self._offloaded or not torch.is_grad_enabled()
        if self.pool is None or is_kept:
            return nullcontext()
        return saved_on_host(layer, self.pool)

    def _run(
        self, name: str, layer: nn.Module, x: Tensor, targets: Tensor | None
    ) -> Tensor:
        """Run one layer, which may recompute; the last one with the loss."""
        index = int(name)
        key = random_key(self._seed, self.step, self.first_sample, index)
        run = partial(run_layer, layer, self._device, key)
        recomputed = index in self._recomputed
        if self._loss is None or targets is None or name != self._last:
            return passed_on(run_once(run, x, recomputed=recomputed))
        loss, count = run_last(run, self._loss, x, targets, recomputed=recomputed)
        with torch.no_grad():
            self.count += known_count(count)
        if self.loss_scale is not None and loss.requires_grad:
            loss.register_hook(partial(scaled, self.loss_scale))  # type: ignore[no-untyped-call]
        return loss

    def end_backward(self) -> None:
        """End the backward pass of the first layer, whose inputs have no gradient."""
        for gathered in self.gathered.values():
            gathered.end_backward()


def known_count(count: Tensor | float) -> Tensor | float:
    """Count of a loss, or NaN if it is below 0, without a wait for the device.

    So is the count of the whole step then, which `session` refuses.
    """
    if isinstance(count, Tensor):
        return torch.where(count >= 0, count.double(), math.nan)
    return count if count >= 0 else math.nan


def passed_on(output: Tensor) -> Tensor:
    """Output of a layer as the next one receives it; its gradient comes back likewise.

    Not for the last layer: what enters the loss is neither sent nor received.
    """
    output = output.contiguous()
    if output.requires_grad:
        output.register_hook(Tensor.contiguous)  # type: ignore[no-untyped-call]
    return output


def run_once(run: Callable[[Tensor], Tensor], x: Tensor, *, recomputed: bool) -> Tensor:
    """Output of a layer, which keeps what its backward pass needs, or is run again.

    Without gradients it does neither.
    """
    if not recomputed or not torch.is_grad_enabled():
        return run(x)
    y: Tensor = checkpoint(run, x, use_reentrant=False, preserve_rng_state=False)
    return y


def run_last(
    run: Callable[[Tensor], Tensor],
    loss: Loss,
    x: Tensor,
    targets: Tensor,
    *,
    recomputed: bool,
    places: Places = all_places,
) -> SumAndCount:
    """Loss behind the last layer and what it counts; in pieces if it may be.

    Only where the layer recomputes: each piece is computed twice.
    """
    if recomputed and isinstance(loss, TokenLoss):
        return loss_in_pieces(run, loss, x, targets, places)
    return loss_alone(loss, run_once(run, x, recomputed=recomputed), targets)


def loss_alone(loss: Loss, output: Tensor, targets: Tensor) -> SumAndCount:
    """Loss in memory of its own, and what it counts: 1 where it is a mean.

    `mse_loss` and `smooth_l1_loss` give back a scalar in the memory of all differences
    that it is the mean of. A step holds its losses till it ends.
    """
    made = loss(output, targets)
    total, count = made if isinstance(made, tuple) else (made, 1.0)
    return total.clone(), count


def summed_over_samples(loss: Loss, output: Tensor, targets: Tensor) -> SumAndCount:
    """A mean as sum and count of its samples; sum and count as they are.

    So micro-batches of unlike sizes add up to the mean over all samples.
    """
    made = loss(output, targets)
    if isinstance(made, tuple):
        return made
    return made.double() * len(targets), float(len(targets))


def run_layer(layer: nn.Module, device: torch.device, key: int, x: Tensor) -> Tensor:
    """Run one layer with the random numbers of `key`, however often it is run."""
    seed_device(device, key)
    y: Tensor = layer(x)
    return y


def build_stage(
    workload: Workload,
    part: StageSlice,
    device: torch.device,
    given_back: frozenset[int] = frozenset(),
    share: Share = WHOLE,
    mesh: DeviceMesh | None = None,
    link: HostLink | None = None,
) -> StageModule:
    """Build the layers of a slice, each from its own seed, with gradients at zero.

    Where its first layer gives back its input, that is a copy of what was received: the
    engine holds the one and the layer's output is another, as the formula counts them.

    Gradients are there from the start: their bytes are needed at the peak of the
    backward pass anyway, and it then does not matter how many micro-batches there are.

    Where replicas divide what they hold, parameters are moved layer by layer, so that
    no more than one layer is there twice. Where a tensor group shares each layer, this
    rank keeps its part of what each builds.
    """
    layers = nn.ModuleDict()
    built = {
        str(index): build_trained(
            *(workload, index, layers, device, part.share(share), mesh),
            sequence_parallel=part.sequence_parallel,
        )
        for index in range(part.first_layer, part.end_layer)
    }
    return stage_of(workload, part, layers, built, device, given_back, link)


def stage_of(
    workload: Workload,
    part: StageSlice,
    layers: nn.ModuleDict,
    built: Mapping[str, BuiltLayer],
    device: torch.device,
    given_back: frozenset[int] = frozenset(),
    link: HostLink | None = None,
) -> StageModule:
    """A stage of layers that are built, by index, in the order of the chain.

    Raises:
        ValueError: they are not those of the slice in their order.
    """
    names = [str(index) for index in range(part.first_layer, part.end_layer)]
    if list(layers) != names or list(built) != names:
        raise ValueError(f"layers {list(layers)} are not {names}, or not in order")
    ends_chain = part.end_layer == len(workload.layers)
    return StageModule(
        layers,
        built=built,
        part=part,
        copies_input=part.first_layer in given_back,
        loss=workload.loss if ends_chain else None,
        seed=workload.seed,
        device=device,
        link=link,
    )
