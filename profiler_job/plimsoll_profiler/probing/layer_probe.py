"""One probe: what one layer holds in one pass, at one micro-batch.

The layer runs between two joints that stand for its neighbours:

    [source] -- x --> layer -- y --> [sink]      forward: x exists, y comes out
    [source] <- dx -- layer <- dy -- [sink]      backward: dy exists, dx comes out

Between the passes every reference but the graph's own is dropped, so what is alive then
is what the layer saved. Inside a stage the sink makes dy within autograd, which lets go
of it once it is used; at the end of a stage the engine received dy and holds it until
the pass is over. The same code counts fake tensors and a real device: only the meter
differs. All bytes are those that the device's allocator takes.

Carried values that the layer takes are there before and stay, held by the engine, and
so are those that it gives, until it runs backward: none of them counts as saved. The
buffer of a gradient counts from where it is made: that of a taken value in the pass of
its last taker, that of a given one before the pass of its giver begins, in which it
counts.

A layer may give back its input, as a view or changed in place. The two are one storage
then, which is counted as the output: the layer keeps no input.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from plimsoll_planner.records.engine import Way
from plimsoll_profiler.counting.live_bytes import LiveBytes
from plimsoll_profiler.counting.meters import Bench
from plimsoll_profiler.probing.few_pieces import FewPieces
from plimsoll_profiler.probing.messages import Activations
from plimsoll_trainer.engine.carried_values import (
    GradientSum,
    Taken,
    behind_joint,
    joined,
    returned,
)
from plimsoll_trainer.engine.host_link import HostLink
from plimsoll_trainer.engine.layer_runs import run_last, run_layer, run_once
from plimsoll_trainer.engine.offloaded_layers import HostPool, saved_on_host
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.engine.token_pieces import Places, all_places
from plimsoll_trainer.torch_internals.operators import storage_of
from plimsoll_trainer.workload import Loss, SumAndCount

Forward = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenSpec:
    """A carried value that a layer takes."""

    spec: TensorSpec
    needs_gradient: bool
    is_last: bool
    """No later layer takes it, so the buffer of its gradient is made here, if any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCase:
    """A layer in its place: what enters, what follows, in which way it is run."""

    incoming: TensorSpec
    is_untrained: bool
    """Nothing before it is trained, so what enters needs no gradient."""
    targets: TensorSpec | None = None
    """Given where the layer ends the chain, with the loss on top."""
    loss: Loss | None = None
    recomputed: bool = False
    offloaded: bool = False
    """Activations are in the memory of the machine between the passes."""
    is_inside: bool = False
    """Another layer of the stage follows."""
    taken: tuple[TakenSpec, ...] = ()
    """Carried values that it is called with."""


def ways_of(where: LayerCase, *, recomputable: bool) -> dict[Way, LayerCase]:
    """Ways to run a layer; the plain one first."""
    return {
        way: replace(where, recomputed=way.recomputes, offloaded=way.offloads)
        for way in Way
        if recomputable or not way.recomputes
    }


class Incoming(torch.autograd.Function):
    """Gives the layer's input, and lets go of its gradient."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, incoming: TensorSpec) -> Tensor:
        """Make an input of the usual size; zeros would be quicker than life."""
        ctx.set_materialize_grads(False)
        return incoming.empty(anchor.device).normal_()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, None]:
        """Make the input's gradient contiguous, as it is passed on, and drop it."""
        del ctx
        for gradient in gradients:
            if gradient is not None:
                gradient.contiguous()
        return None, None


class Unpassed(torch.autograd.Function):
    """Takes a value that the layer gives, where its output has no gradient."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        """Give a root of the graph that takes no memory."""
        del ctx
        return value.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        """Let the layer begin; what it is to begin with, it has."""
        del ctx, gradients


class Outgoing(torch.autograd.Function):
    """Takes the layer's output, and makes a gradient that autograd alone holds."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        """Give a root of the graph that takes no memory."""
        ctx.like, ctx.device = torch.empty_like(y, device="meta"), y.device
        return y.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Make the output's gradient."""
        del gradients
        return torch.ones_like(ctx.like, device=ctx.device)


def forward_of(layer: nn.Module, case: LayerCase, device: torch.device) -> Forward:
    """The pass that a stage would run for this layer."""
    run: Forward = partial(run_layer, layer, device, 0)
    return partial(run_once, run, recomputed=case.recomputed)


def loss_of(
    layer: nn.Module, case: LayerCase, device: torch.device, places: Places
) -> Callable[..., SumAndCount] | None:
    """The pass that ends the chain; None where another layer follows."""
    if case.loss is None:
        return None
    run: Forward = partial(run_layer, layer, device, 0)
    return partial(run_last, run, case.loss, recomputed=case.recomputed, places=places)


class MicroBatch:
    """One micro-batch in a layer, made anew for each forward and backward pass."""

    def __init__(
        self,
        layer: nn.Module,
        case: LayerCase,
        device: torch.device,
        places: Places = all_places,
    ) -> None:
        """Make what enters the layer; nothing is computed yet."""
        self._layer = layer
        self._run = forward_of(layer, case, device)
        self._loss = loss_of(layer, case, device, places)
        self._is_inside = case.is_inside
        self._device = device
        self._pool = HostPool(HostLink(device)) if case.offloaded else None
        targets = case.targets
        self._targets = None if targets is None else targets.empty(device).zero_()
        self.x = make_input(case, device)
        self.y: Tensor
        self.given: Sequence[Tensor] = ()
        self._held = [make_taken(one, device) for one in case.taken]
        self._taken = [joined(Taken, *one) for one in self._held]
        self._given_sums: list[GradientSum] = []
        self._given_like: list[Tensor] = []
        self._root: Tensor | GradientEdge | None = None
        self._like: Tensor | None = None
        self._gradient: Tensor | None = None

    def forward(self) -> None:
        """Run forward, with the loss or the copy that the next layer receives."""
        with self._saving():
            if self._loss is not None and self._targets is not None:
                self.y, _ = self._loss(self.x, self._targets, *self._taken)
                return
            output = self._run(self.x, *self._taken)
            self.y, given = returned(output, self.x, self._taken, self._layer)
        if given:
            del output
            self._given_sums = [GradientSum() for _ in given]
            self.y, *self.given = behind_joint(self._given_sums, self.y, given)

    @property
    def is_trained(self) -> bool:
        """Whether something of what came out has a gradient."""
        return any(one.requires_grad for one in (self.y, *self.given))

    def _saving(self) -> AbstractContextManager[None]:
        """Within it, the layer saves where its case has it."""
        if self._pool is None:
            return nullcontext()
        return saved_on_host(self._layer, self._pool, self._taken)

    @property
    def host_bytes(self) -> int:
        """In the memory of the machine between the passes."""
        return 0 if self._pool is None else self._pool.num_bytes

    def release_output(self) -> None:
        """Let go of what came out, as the schedule does.

        It keeps the loss, and of any other output no more than the edge of the graph
        that its gradient will enter.
        """
        y, given = self.y, self.given
        del self.y
        self.given = ()
        self._given_like = [torch.empty_like(one, device="meta") for one in given]
        self._given_sums = [
            each if one.requires_grad else GradientSum()
            for each, one in zip(self._given_sums, given, strict=True)
        ]
        if not y.requires_grad:
            self._begin_unpassed(given)
            return
        if self._loss is not None:
            self._root = y
        elif self._is_inside:
            self._root = joint = cast(Tensor, Outgoing.apply(y))
            self._gradient = torch.empty_like(joint)
        else:
            self._root = get_gradient_edge(y)
            self._like = torch.empty_like(y, device="meta")

    def _begin_unpassed(self, given: Sequence[Tensor]) -> None:
        """Let the backward pass begin by values alone."""
        for value in given:
            if value.requires_grad:
                self._root = joint = cast(Tensor, Unpassed.apply(value))
                self._gradient = torch.empty_like(joint)
                return

    def turn(self) -> None:
        """Make the gradients that the engine received, and what takers have found."""
        if self._like is not None:
            self._gradient = torch.ones_like(self._like, device=self._device)
        for gradient, like in zip(self._given_sums, self._given_like, strict=True):
            if like.is_floating_point():
                gradient.total = torch.ones_like(like, device=self._device)

    def backward(self) -> None:
        """Run backward, if something of the output is trained.

        At the end of a stage the engine holds what it received until the pass is over.
        """
        root, gradient = self._root, self._gradient
        self._root = self._gradient = None
        received = [] if self._is_inside else [one.total for one in self._given_sums]
        if root is not None:
            torch.autograd.backward(root, gradient)
        del received


def probe_activations(layer: nn.Module, case: LayerCase, bench: Bench) -> Activations:
    """Activations of a layer that is in training mode, with gradients."""
    at_end = probe_in_place(layer, case, bench)
    if case.loss is not None:
        return at_end
    inside = probe_in_place(layer, replace(case, is_inside=True), bench)
    return replace(
        inside,
        backward_transient_at_end_bytes=at_end.backward_transient_bytes,
        held_input_bytes=max(at_end.held_input_bytes, inside.held_input_bytes),
    )


def probe_in_place(layer: nn.Module, case: LayerCase, bench: Bench) -> Activations:
    """Run a micro-batch that lets go of its input, and one that does not.

    A trace tells both in one pass.
    """
    found = probe_one(layer, case, bench)
    if isinstance(bench.meter, LiveBytes):
        return found
    held = probe_one(layer, case, bench, holds_input=True)
    more_bytes = held.backward_transient_bytes - found.backward_transient_bytes
    return replace(found, held_input_bytes=max(more_bytes, 0))


def probe_one(
    layer: nn.Module, case: LayerCase, bench: Bench, *, holds_input: bool = False
) -> Activations:
    """Activations in one micro-batch, whose input may live on until the pass is over.

    Both transients of backward are those of its one pass.
    """
    places = all_places if bench.is_real else FewPieces()
    meter, run = bench.meter, MicroBatch(layer, case, bench.device, places)
    held = run.x if holds_input else None
    if isinstance(meter, LiveBytes):
        meter.watch(run.x)
    start_bytes = meter.current_bytes
    meter.reset_peak()
    run.forward()
    boundary_bytes = bench.bytes_of(run.y)
    forward_transient_bytes = meter.peak_bytes - start_bytes
    given_bytes = sum(bench.bytes_of(value) for value in run.given)
    if not run.is_trained:
        return Activations(
            boundary_bytes=boundary_bytes,
            forward_transient_bytes=forward_transient_bytes,
        )
    kept = release(run, bench)
    base_bytes = start_bytes - kept.gone_bytes
    saved_bytes = meter.current_bytes - base_bytes
    meter.reset_peak()
    run.turn()
    run.backward()
    backward_transient_bytes = meter.peak_bytes - base_bytes
    held_input_bytes = 0
    if isinstance(meter, LiveBytes):
        held_bytes = meter.held_peak_bytes - start_bytes + kept.shared_bytes
        held_input_bytes = max(held_bytes - backward_transient_bytes, 0)
    del held
    return Activations(
        boundary_bytes=boundary_bytes,
        forward_transient_bytes=forward_transient_bytes,
        saved_bytes=saved_bytes - given_bytes - (boundary_bytes if kept.output else 0),
        keeps_input=kept.input,
        keeps_output=kept.output,
        backward_transient_bytes=backward_transient_bytes,
        backward_transient_at_end_bytes=backward_transient_bytes,
        held_input_bytes=held_input_bytes,
        host_bytes=run.host_bytes,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """Tensors alive between the passes, besides those that the layer saved."""

    input: bool
    output: bool
    gone_bytes: int
    """Of the input, where it is not alive or counts as the output."""
    shared_bytes: int
    """Of the input, where it is the output."""


def release(run: MicroBatch, bench: Bench) -> Kept:
    """Let go of input and output, and see which of them the graph holds on to."""
    x, y = (weakref.ref(storage_of(tensor)[1]) for tensor in (run.x, run.y))
    is_one, input_bytes = x() is y(), bench.bytes_of(run.x)
    run.release_output()
    before_bytes = bench.meter.current_bytes
    del run.x
    gone_bytes = before_bytes - bench.meter.current_bytes
    keeps_output = y() is not None
    return Kept(
        input=x() is not None and not is_one,
        output=keeps_output,
        gone_bytes=input_bytes if is_one and keeps_output else gone_bytes,
        shared_bytes=input_bytes if is_one else 0,
    )


def make_input(case: LayerCase, device: torch.device) -> Tensor:
    """Make what enters the layer, with a gradient if something before it is trained."""
    if case.is_untrained or not case.incoming.dtype.is_floating_point:
        x = case.incoming.empty(device)
        return x.normal_() if x.is_floating_point() else x.zero_()
    anchor = torch.zeros((), device=device, requires_grad=True)
    made: Tensor = Incoming.apply(anchor, case.incoming)
    return made


def make_taken(taken: TakenSpec, device: torch.device) -> tuple[Tensor, GradientSum]:
    """A carried value as the engine holds it, with what later takers have found."""
    value = taken.spec.empty(device)
    value = value.normal_() if value.is_floating_point() else value.zero_()
    found = GradientSum()
    if taken.needs_gradient:
        value.requires_grad_()
        if not taken.is_last:
            found.total = torch.zeros_like(value, requires_grad=False)
    return value, found
