"""Layers of which replicas divide parameters or gradients, whole while at work.

What a replica holds of a layer between two passes, and what it does in each of them:

    divided       between passes           forward          backward
    gradients     values, own gradients                     + gradients
    parameters    own of both              + values         + values, gradients

    forward       [gather] pass [let go]
    backward      [gather] pass [let go, add gradients up, each slice on its owner]

Each is done for one layer at a time, in place, and at the boundaries of layers, so that
a rank holds no more than one layer whole. Nothing is gathered ahead of time: that would
take the memory of a second layer.

In: buffers of a layer. Called by `stage`, with hooks on what passes between layers:
autograd computes the gradient of a boundary when the layer behind it is done.
Source: Rajbhandari et al., ZeRO, SC 2020 (stages 2 and 3).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from plimsoll_trainer.engine.collectives import add_parts, gather_slices, reduce_slices
from plimsoll_trainer.engine.flat_buffers import FlatBuffer, let_go, take_memory


class GatheredLayer:
    """One layer."""

    def __init__(self, buffers: Sequence[FlatBuffer], group: dist.ProcessGroup) -> None:
        """Take the buffers of a layer, whose replicas are a group."""
        self._gradients = [one for one in buffers if one.kept_gradients is not None]
        self._values = [one for one in buffers if one.kept_values is not None]
        self._group = group
        self._is_turned = False

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Within it all parameters are here."""
        self.gather()
        yield
        self.release()

    @torch.no_grad()
    def gather(self) -> None:
        """Let all parameters be here."""
        for buffer in self._values:
            values, own = buffer.values, buffer.kept_values
            assert values is not None  # noqa: S101 - divided values are in a buffer
            assert own is not None  # noqa: S101 - see above
            take_memory(values)
            values[buffer.own].copy_(own)
            gather_slices(values, buffer.own, self._group)

    def release(self) -> None:
        """Let go of the parameters that other replicas own."""
        for buffer in self._values:
            if buffer.values is not None:
                let_go(buffer.values)

    @torch.no_grad()
    def begin_backward(self) -> None:
        """Let all parameters be here, and gradients at zero."""
        self._is_turned = True
        self.gather()
        for buffer in self._gradients:
            take_memory(buffer.gradients)
            buffer.gradients.zero_()

    @torch.no_grad()
    def end_backward(self) -> None:
        """Add gradients up and let go of all but what is owned here.

        Those of parts of a sequence are first added up in the tensor group. Nothing is
        done if no backward pass has begun.
        """
        if not self._is_turned:
            return
        self._is_turned = False
        self.release()
        for buffer in self._gradients:
            add_parts(buffer.parameters, buffer.share.parts)
            reduce_slices(buffer.gradients, buffer.own, self._group)
            buffer.own_gradients.add_(buffer.gradients[buffer.own])
            let_go(buffer.gradients)


def gathered_layers(
    flat: Mapping[str, Sequence[FlatBuffer]],
) -> dict[str, GatheredLayer]:
    """Layers of which something is let go of between passes, by name."""
    found: dict[str, GatheredLayer] = {}
    for name, buffers in flat.items():
        for buffer in buffers:
            if buffer.kept_gradients is not None and buffer.share.group is not None:
                found[name] = GatheredLayer(buffers, buffer.share.group)
    return found


def let_pass(
    boundary: Sequence[Tensor],
    before: GatheredLayer | None,
    behind: GatheredLayer | None,
) -> None:
    """End the backward pass of the layer behind a boundary, and begin that before it.

    That is when the gradient of what it passes on is known, or, where that has none,
    those of all values that it gives.
    """
    if not (before or behind):
        return
    turned = partial(turn, before, behind)
    passed, *given = boundary
    if passed.requires_grad:
        passed.register_hook(turned)  # type: ignore[no-untyped-call]
        return
    joints = (value.grad_fn for value in given if value.grad_fn is not None)
    for joint in itertools.islice(joints, 1):
        joint.register_prehook(turned)


def turn(before: GatheredLayer | None, behind: GatheredLayer | None, _: object) -> None:
    """Pass on from the layer behind a boundary to the one before."""
    if behind is not None:
        behind.end_backward()
    if before is not None:
        before.begin_backward()
