"""The last layer and its loss, a few tokens at a time.

In: a last layer, a `TokenLoss`, the layer's input and the targets of a micro-batch.
Out: sum and count, as of the whole output, which is never there:

    forward     piece -> layer -> output of the piece -> its sum          dropped
    backward    piece -> layer -> output -> sum -> gradients              dropped

A piece is some tokens of one sample, so bytes do not grow with the micro-batch. If a
tensor group splits sequences, each rank has its own tokens in front of the layer, and
all of a piece behind it: as many of each rank's part, in the order of ranks. The
gradients of parameters are added up in their `.grad` piece by piece, as those of
micro-batches are; so whatever holds for these, such as sums in another type, parts of a
tensor group and ties, holds for pieces. Called by the stage and by the profiler where
the last layer recomputes, and by `boundaries`, which refuses what cannot be cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor

from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.torch_internals.operators import TorchDispatchMode
from plimsoll_trainer.workload import SumAndCount, TokenLoss

Run = Callable[[Tensor], Tensor]
"""The last layer."""
Places = Callable[[int, range], Iterator[tuple[int, int]]]
"""Of a number of samples and the first tokens of their pieces: which pieces are run."""


def all_places(num_samples: int, firsts: range) -> Iterator[tuple[int, int]]:
    """All pieces, each by its sample and its first token."""
    return itertools.product(range(num_samples), firsts)


def loss_in_pieces(
    run: Run,
    loss: TokenLoss,
    x: Tensor,
    targets: Tensor,
    places: Places = all_places,
) -> SumAndCount:
    """Sum of the loss over all tokens, and how many count.

    Args:
        run: the last layer; called twice for each piece.
        loss: of a piece of its output.
        x: what enters the layer, [samples, tokens, ...]; of split sequences this
            rank's tokens.
        targets: [samples, tokens, ...], of all tokens.
        places: fewer than all pieces where only bytes and work are looked at.
    """
    # The sum needs a gradient even where nothing before the last layer is trained.
    anchor = torch.empty(0, device=x.device, requires_grad=True)
    return cast(SumAndCount, InPieces.apply(run, loss, places, x, targets, anchor))


def pieces(
    num_tokens: int, places: Places, targets: Tensor, *tensors: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    """Yield targets of so many tokens of one sample, the last ones of fewer.

    With each of them come views of those tokens of the other tensors, which may be this
    rank's part of sequences.
    """
    own = tensors[0].shape[1]
    parts = targets.shape[1] // own
    by_part = targets.reshape(len(targets), parts, own, *targets.shape[2:])
    each = max(1, num_tokens // parts)
    for sample, first in places(len(targets), range(0, own, each)):
        tokens = slice(first, first + each)
        wanted = by_part[sample : sample + 1, :, tokens].flatten(1, 2)
        mine = (tensor[sample : sample + 1, tokens] for tensor in tensors)
        yield wanted, *mine


def precise(one: Tensor | float) -> Tensor | float:
    """A sum or count of a piece, in a type that many of them can be added up in."""
    if isinstance(one, Tensor) and one.is_floating_point():
        return one.to(torch.promote_types(one.dtype, torch.float32))
    return one


def as_given(total: Any, one: Tensor | float) -> Any:
    """A total in the type that the loss gave of a piece."""
    return total.to(one.dtype) if isinstance(one, Tensor) else total


class InPieces(torch.autograd.Function):
    """Sum and count of a loss; its backward pass is one for each piece."""

    @staticmethod
    def forward(
        ctx: Any,
        run: Run,
        loss: TokenLoss,
        places: Places,
        x: Tensor,
        targets: Tensor,
        anchor: Tensor,
    ) -> SumAndCount:
        """Add up sums and counts of all pieces, and keep no more than the input."""
        del anchor
        ctx.run, ctx.loss, ctx.places = run, loss, places
        ctx.save_for_backward(x, targets)
        total: Any = 0.0
        count: Any = 0
        one, part = total, count
        for wanted, piece in pieces(loss.tokens_at_once, places, targets, x.detach()):
            one, part = loss.loss(run(piece), wanted)
            total, count = total + precise(one), count + precise(part)
        total, count = as_given(total, one), as_given(count, part)
        if isinstance(count, Tensor):
            ctx.mark_non_differentiable(count)
        return total, count

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Compute each piece once more, with its gradients."""
        x, targets = ctx.saved_tensors
        dx = torch.empty_like(x) if ctx.needs_input_grad[3] else None
        for wanted, piece, out in pieces(
            *(ctx.loss.tokens_at_once, ctx.places, targets),
            *(x, x if dx is None else dx),
        ):
            leaf = piece.detach().requires_grad_(dx is not None)
            with torch.enable_grad():
                total, _ = ctx.loss.loss(ctx.run(leaf), wanted)
            torch.autograd.backward(total, gradients[0])
            if leaf.grad is not None:
                out.copy_(leaf.grad)
        return None, None, None, dx, None, None


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Whether random numbers may be drawn."""

    operator = ""
    """The last one that may draw, as dropout does and attention may."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run it, and look at what torch says of it."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.operator = str(func)
        return func(*args, **kwargs or {})


DIMENSIONS = 2
"""Samples and tokens."""


def check_pieces(
    name: str, run: Run, loss: TokenLoss, x: Tensor, targets: Tensor
) -> None:
    """Refuse a last layer or targets that cannot be cut into tokens.

    Whether a token's output depends on other tokens cannot be seen without numbers.

    Args:
        name: of the last layer, in messages.
        run: the last layer.
        loss: of a piece of its output.
        x: what enters the layer; may be fake, as all else.
        targets: of a micro-batch.

    Raises:
        WorkloadError: says which, and what to give instead.
    """
    remedy = f"give the loss itself in place of TokenLoss({loss.name}, ...)"
    if x.ndim < DIMENSIONS or targets.shape[:2] != x.shape[:2]:
        raise WorkloadError(
            f"a TokenLoss needs samples and tokens as first dimensions, but layer "
            f"{name!r} takes {list(x.shape)} and the targets are "
            f"{list(targets.shape)}: {remedy}"
        )
    [[wanted, piece], *_] = pieces(max(1, x.shape[1] - 1), all_places, targets, x)
    try:
        with torch.no_grad(), Draws() as draws:  # type: ignore[no-untyped-call]
            output = run(piece)
            found: object = loss.loss(output, wanted)
    except Exception as error:
        raise WorkloadError(
            f"layer {name!r} or its loss fails on {piece.shape[1]} of {x.shape[1]} "
            f"tokens: {located(error)}; {remedy}"
        ) from error
    if output.shape[:2] != piece.shape[:2]:
        raise WorkloadError(
            f"layer {name!r} turns {piece.shape[1]} of {x.shape[1]} tokens into "
            f"{list(output.shape)}, but one output for each token is needed: {remedy}"
        )
    if draws.operator:
        raise WorkloadError(
            f"layer {name!r} or its loss runs {draws.operator}, which may draw random "
            f"numbers, and pieces would draw others than the whole: {remedy}"
        )
    if not isinstance(found, tuple):
        raise WorkloadError(
            f"the loss in TokenLoss({loss.name}, ...) gives no sum and count, and "
            "means of pieces cannot be added up: return (sum over the tokens that "
            "count, how many count)"
        )
