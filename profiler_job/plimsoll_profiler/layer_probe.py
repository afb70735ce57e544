"""One probe: what one layer holds in one pass, at one micro-batch.

The layer runs between two joints that stand for its neighbours:

    [source] -- x --> layer -- y --> [sink]      forward: x exists, y comes out
    [source] <- dx -- layer <- dy -- [sink]      backward: dy exists, dx comes out

Between the passes every reference but the graph's own is dropped, so what is alive then
is what the layer saved. The same code counts fake tensors and a real device: only the
meter differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

from plimsoll_trainer.boundaries import TensorSpec
from plimsoll_trainer.stage import run_layer
from plimsoll_trainer.workload import Loss

Forward = Callable[[Tensor], Tensor]


class Meter(Protocol):
    """Bytes of live tensors, and their peak."""

    @property
    def current(self) -> int:
        """Bytes alive now."""
        ...

    @property
    def peak(self) -> int:
        """Most bytes alive at a time since `reset_peak`."""
        ...

    def reset_peak(self) -> None:
        """Start counting the peak from what is alive now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Activations:
    """Bytes of one micro-batch; the fields are those of `ActivationColumns`."""

    boundary: int
    saved: int
    keeps_input: bool
    keeps_output: bool
    forward_transient: int
    backward_transient: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCase:
    """A layer in its place: what enters, what follows, whether it is recomputed."""

    incoming: TensorSpec
    is_first: bool
    targets: TensorSpec | None = None
    """Given where the layer ends the chain, with the loss on top."""
    loss: Loss | None = None
    recomputed: bool = False


class Source(torch.autograd.Function):
    """Gives the layer's input, and lets go of its gradient."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, incoming: TensorSpec) -> Tensor:
        """Make an input of the usual size; zeros would be quicker than life."""
        ctx.set_materialize_grads(False)
        return incoming.empty(anchor.device).normal_()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, None]:
        """Drop the input's gradient."""
        del ctx, gradients
        return None, None


def forward_of(layer: nn.Module, case: LayerCase, device: torch.device) -> Forward:
    """Return the pass that a stage would run for this layer."""
    run: Forward = partial(run_layer, layer, device, 0)
    if case.recomputed:
        return partial(checkpoint, run, use_reentrant=False, preserve_rng_state=False)
    return run


def probe_activations(
    layer: nn.Module, case: LayerCase, device: torch.device, meter: Meter
) -> Activations:
    """Run one micro-batch through a layer whose gradients exist already.

    Args:
        layer: in training mode, on `device`.
        case: its place in the chain.
        device: where it runs.
        meter: counts the device.

    Returns:
        Nothing is saved and no backward runs where nothing before or in the layer is
        trained.
    """
    forward = forward_of(layer, case, device)
    targets = make_targets(case, device)
    x = make_input(case, device)
    input_bytes = x.untyped_storage().nbytes()
    start = meter.current
    meter.reset_peak()
    y = forward(x)
    if case.loss is not None and targets is not None:
        y = case.loss(y, targets)
    forward_transient = meter.peak - start
    boundary = y.untyped_storage().nbytes()
    if not y.requires_grad:
        return Activations(
            boundary=boundary,
            saved=0,
            keeps_input=False,
            keeps_output=False,
            forward_transient=forward_transient,
            backward_transient=0,
        )

    held = meter.current
    root = y if case.loss is not None else get_gradient_edge(y)
    gradient = None if case.loss is not None else torch.empty_like(y)
    gradient_bytes = 0 if gradient is None else gradient.untyped_storage().nbytes()
    if case.loss is None:
        del y
        keeps_output = meter.current - gradient_bytes > held - boundary
    else:
        keeps_output = True
    before = meter.current
    del x
    keeps_input = meter.current > before - input_bytes
    base = start if keeps_input else start - input_bytes
    saved = meter.current - gradient_bytes - base - (boundary if keeps_output else 0)

    meter.reset_peak()
    torch.autograd.backward(root, gradient)
    return Activations(
        boundary=boundary,
        saved=saved,
        keeps_input=keeps_input,
        keeps_output=keeps_output,
        forward_transient=forward_transient,
        backward_transient=meter.peak - base,
    )


class Passes:
    """Forward and backward of a layer in its place, one after the other."""

    def __init__(self, layer: nn.Module, case: LayerCase, device: torch.device) -> None:
        """Prepare to run; nothing is computed yet."""
        self._forward = forward_of(layer, case, device)
        self._case = case
        self._x = make_input(case, device)
        self._targets = make_targets(case, device)
        self._y: Tensor | None = None

    def forward(self) -> None:
        """Run forward, the loss included."""
        y = self._forward(self._x)
        if self._case.loss is not None and self._targets is not None:
            y = self._case.loss(y, self._targets)
        self._y = y

    def backward(self) -> None:
        """Run backward through what `forward` ran last."""
        y, self._y = self._y, None
        if y is not None and y.requires_grad:
            torch.autograd.backward(y, None if y.ndim == 0 else torch.ones_like(y))


def make_targets(case: LayerCase, device: torch.device) -> Tensor | None:
    """Make what the loss compares with, where the layer ends the chain."""
    return None if case.targets is None else case.targets.empty(device).zero_()


def make_input(case: LayerCase, device: torch.device) -> Tensor:
    """Make what enters the layer; the chain's first layer needs no gradient for it."""
    if case.is_first or not case.incoming.dtype.is_floating_point:
        x = case.incoming.empty(device)
        return x.normal_() if x.is_floating_point() else x.zero_()
    anchor = torch.zeros((), device=device, requires_grad=True)
    made: Tensor = Source.apply(anchor, case.incoming)
    return made
