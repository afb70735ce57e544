"""The part of a model that one rank holds: its own layers, and nothing else.

Legend: a stage holds the layers first .. end - 1 of the chain. Layers are kept under
their index in the whole chain, so that a tensor has one name under every plan.

    x -> [layer] -> [layer, recomputed] -> ... -> y          sent on
                                           ... -> loss       on the last stage

Carried values go beside x and y (`carried_values`).

The loss is computed inside the stage: torch's schedule keeps the output of the last
stage alive through the whole backward pass, and a scalar is cheaper than logits.

What passes from layer to layer is contiguous, activations and gradients alike, wherever
the chain is cut (`passed_on`): a send takes nothing else, and kernels round otherwise
on other strides. A copy, where one is needed, is part of the layer that makes
it, so the profile counts it and every plan computes the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_trainer.engine.built_layer import BuiltLayer, build_trained
from plimsoll_trainer.engine.carried_values import CarriedPass, returned
from plimsoll_trainer.engine.flat_buffers import WHOLE, FlatBuffer, Share
from plimsoll_trainer.engine.gathered_layers import (
    GatheredLayer,
    gathered_layers,
    let_pass,
)
from plimsoll_trainer.engine.host_link import HostLink
from plimsoll_trainer.engine.layer_runs import (
    known_count,
    run_last,
    run_layer,
    run_once,
    summed_over_samples,
)
from plimsoll_trainer.engine.loss_scale import scaled
from plimsoll_trainer.engine.offloaded_layers import HostPool, saved_on_host
from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.workload import Loss, TokenLoss, Workload


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
        workload: Workload,
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
        self._seed = workload.seed
        self._carried = workload.carried
        self._named = workload.layers
        self._own = range(part.first_layer, part.end_layer)
        self._held: deque[list[Tensor]] = deque()
        """Of each micro-batch in flight, carried values that only this holds."""
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

    def forward(
        self, x: Tensor, *received: Tensor, targets: Tensor | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Run one micro-batch through the slice.

        Args:
            x: inputs of the model, or what the stage before sent.
            received: further inputs, or carried values that it sent as well.
            targets: on the last stage, what the loss compares with.

        Returns:
            What is sent on, a tuple if there are carried values; or the loss.
        """
        if x.requires_grad:
            x = Received.apply(x)
        if self._copies_input:
            x = x.clone()
        carried = CarriedPass(self._carried, self._own, received)
        before: GatheredLayer | None = None
        roots = [x]
        for name, layer in self.layers.items():
            gathered, place = self.gathered.get(name), self._named[int(name)]
            let_pass(roots, before, gathered)
            entered, taken = x, carried.taken_by(place.takes)
            whole = nullcontext() if gathered is None else gathered.whole()
            with whole, self._saving(name, layer, taken):
                x, given = self._run(name, layer, x, taken, targets)
            x = carried.give(place.gives, x, given)
            # What is given back gets hooks of its own, which run before those of x.
            x = x.view_as(x) if x is entered and name != self._last else x
            roots, before = [x, *carried.given_by(place.gives)], gathered
            del taken, given
            carried.let_go(int(name))
        let_pass(roots, before, None)
        if torch.is_grad_enabled():
            self._held.append(carried.held)
        sent = tuple(carried.sent())
        return (x, *sent) if sent else x

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

    def _saving(
        self, name: str, layer: nn.Module, taken: Sequence[Tensor]
    ) -> AbstractContextManager[None]:
        """Within it, a layer saves its activations in the memory that is planned."""
        is_kept = int(name) not in self._offloaded or not torch.is_grad_enabled()
        if self.pool is None or is_kept:
            return nullcontext()
        return saved_on_host(layer, self.pool, taken)

    def _run(
        self,
        name: str,
        layer: nn.Module,
        x: Tensor,
        taken: Sequence[Tensor],
        targets: Tensor | None,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Run one layer, which may recompute; the last one with the loss.

        Returns:
            What it passes on, and the values that it gives.
        """
        index = int(name)
        key = random_key(self._seed, self.step, self.first_sample, index)
        run = partial(run_layer, layer, self._device, key)
        recomputed = index in self._recomputed
        if self._loss is None or targets is None or name != self._last:
            output = run_once(run, x, *taken, recomputed=recomputed)
            return returned(output, x, taken, layer)
        loss, count = run_last(
            run, self._loss, x, targets, *taken, recomputed=recomputed
        )
        with torch.no_grad():
            self.count += known_count(count)
        if self.loss_scale is not None and loss.requires_grad:
            loss.register_hook(partial(scaled, self.loss_scale))  # type: ignore[no-untyped-call]
        return loss, ()

    @property
    def num_in_flight(self) -> int:
        """Micro-batches that have gone forward and not backward."""
        return len(self._held)

    def begin_step(self) -> None:
        """Forget micro-batches of a step that did not end."""
        self._held.clear()

    def end_backward(self) -> None:
        """End the backward pass of the first layer, whose inputs have no gradient.

        That of the oldest micro-batch in flight is over then.
        """
        if self._held:
            self._held.popleft()
        for gathered in self.gathered.values():
            gathered.end_backward()


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
        workload=workload,
        device=device,
        link=link,
    )
