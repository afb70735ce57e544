"""Values that layers carry past others, in one micro-batch of a stage.

    passed      x -> [layer i] -> ... -> [layer j] -> y
    carried           | given            ^ taken
                      +---- v -----------+------------> sent on, the same memory

    forward     v is held from its giver on, until that one's backward pass begins
    backward    the last taker makes a buffer for the gradient of v, or a later stage
                has sent it; other takers add to it; the giver is handed it

A value that this stage received is held by torch's stage until the backward pass of
its micro-batch is over. One without a gradient is held likewise, by the pass of its
giver if that has one. So what is held does not depend on what layers save, and layers
are profiled alone.

Gradients do not flow along the graph but into the buffer, which is one and the same
memory from the last taker to the giver: autograd would add out of place in some cases.
A taker's own gradient may be a view, or be another tensor's too, so it is copied. The
graph still knows the order: the giver's pass begins when all takers have added.

In: what enters a stage, and what layers give. Called by `stage`, by `boundaries` and by
the profiler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from plimsoll_trainer.carried import CarriedValue
from plimsoll_trainer.engine.split_tensors import here
from plimsoll_trainer.torch_internals.operators import storage_of


class GradientSum:
    """Gradient of one value in one micro-batch, as far as its takers have run."""

    def __init__(self, total: Tensor | None = None) -> None:
        """Begin with nothing, or with what others have found."""
        self.total = total

    def add(self, gradient: Tensor | None) -> None:
        """Add what one taker has found."""
        if gradient is None:
            return
        if self.total is None:
            self.total = gradient.clone(memory_format=torch.contiguous_format)
        else:
            self.total.add_(gradient)

    def take(self) -> Tensor | None:
        """All of it, which is held no more; None where no gradient came."""
        total, self.total = self.total, None
        return total


class Entered(torch.autograd.Function):
    """A value that the stage received; its gradient is sent back."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradient: GradientSum) -> Tensor:
        """The same memory."""
        ctx.set_materialize_grads(False)
        ctx.gradient = gradient
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        """What its takers have added up."""
        del gradients
        return ctx.gradient.take(), None


class Given(torch.autograd.Function):
    """All that a giving layer returns; holds the values until its backward pass.

    One node, so that nothing of the layer runs backward before all is known.
    """

    @staticmethod
    def forward(
        ctx: Any, sums: Sequence[GradientSum], passed: Tensor, *values: Tensor
    ) -> tuple[Tensor, ...]:
        """The same memory, and the same counts of what is written to it."""
        ctx.set_materialize_grads(False)
        ctx.sums = sums
        outputs = [tensor.detach() for tensor in (passed, *values)]
        needed = zip(outputs, ctx.needs_input_grad[1:], strict=True)
        ctx.mark_non_differentiable(*(out for out, needs in needed if not needs))
        ctx.save_for_backward(*outputs[1:])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradient of the passed value, and what takers have added up."""
        return None, gradients[0], *(each.take() for each in ctx.sums)


class Taken(torch.autograd.Function):
    """A value as one layer takes it."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradient: GradientSum) -> Tensor:
        """The same memory."""
        ctx.set_materialize_grads(False)
        ctx.gradient = gradient
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, None]:
        """Add to the buffer of the value."""
        ctx.gradient.add(gradients[0])
        return None, None


class Sent(torch.autograd.Function):
    """A value as it is sent on."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradient: GradientSum) -> Tensor:
        """The same memory."""
        ctx.set_materialize_grads(False)
        ctx.gradient = gradient
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, None]:
        """Let the buffer be the tensor that came back; nobody else needs it."""
        ctx.gradient.total = gradients[0]
        return None, None


class CarriedPass:
    """Values on their way through the layers of a stage."""

    def __init__(
        self, values: Sequence[CarriedValue], layers: range, received: Sequence[Tensor]
    ) -> None:
        """Take what the stage received, in the order of `values`."""
        self._values = values
        self._end = layers.stop
        self._here: dict[str, tuple[Tensor, GradientSum]] = {}
        self.held: list[Tensor] = []
        """Values that no backward pass of a giver holds."""
        entering = (value for value in values if value.enters(layers.start))
        for value, tensor in zip(entering, received, strict=True):
            gradient = GradientSum()
            entered = joined(Entered, tensor, gradient)
            self._here[value.name] = entered, gradient

    def taken_by(self, names: Sequence[str] | None) -> tuple[Tensor, ...]:
        """Values for one layer, in the order of their names."""
        return tuple(joined(Taken, *self._here[name]) for name in names or ())

    def give(
        self, names: Sequence[str], passed: Tensor, given: Sequence[Tensor]
    ) -> Tensor:
        """Carry what a layer gave; the passed value as the next layer gets it."""
        if not given:
            return passed
        sums = [GradientSum() for _ in given]
        passed, *values = behind_joint(sums, passed, given)
        if all(value.grad_fn is None for value in (passed, *values)):
            self.held += values
        for name, value, gradient in zip(names, values, sums, strict=True):
            self._here[name] = value, gradient
        return passed

    def let_go(self, layer: int) -> None:
        """Carry what no later layer takes no further."""
        for value in self._values:
            if value.target == layer:
                self._here.pop(value.name, None)

    def sent(self) -> Iterator[Tensor]:
        """Yield what goes on behind the stage."""
        for value in self._values:
            if value.enters(self._end):
                yield joined(Sent, *self._here[value.name])

    def given_by(self, names: Sequence[str]) -> list[Tensor]:
        """Values that a layer gave, until the last one is taken."""
        return [self._here[name][0] for name in names if name in self._here]


def joined(joint: Any, value: Tensor, gradient: GradientSum) -> Tensor:
    """A value behind a joint of its graph, if it has a gradient."""
    if not value.requires_grad:
        return value
    found: Tensor = joint.apply(value, gradient)
    return found


def behind_joint(
    sums: Sequence[GradientSum], passed: Tensor, given: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """All that a layer returns, behind one joint if any of it has a gradient."""
    if not any(tensor.requires_grad for tensor in (passed, *given)):
        return passed, *given
    found: tuple[Tensor, ...] = Given.apply(sums, passed, *given)
    return found


def returned(
    output: Any, x: Tensor, taken: Sequence[Tensor], layer: nn.Module
) -> tuple[Tensor, list[Tensor]]:
    """The passed value that a layer returns, and the values that it gives.

    Each value is contiguous and owns its memory, so what shares that of another tensor
    is copied; and so is a passed value that is a taken one.
    """
    if not isinstance(output, tuple):
        return passed_on(kept_apart(output, taken)), []
    passed = passed_on(kept_apart(output[0], taken))
    lasting = (here(one) for one in (*layer.parameters(), *layer.buffers()))
    others = [x, passed, *taken, *lasting]
    given: list[Tensor] = []
    for value in output[1:]:
        given.append(in_own_memory(value.contiguous(), [*others, *given]))
    return passed, given


def kept_apart(passed: Tensor, taken: Sequence[Tensor]) -> Tensor:
    """A passed value that lies in the memory of no taken one."""
    return passed.clone() if taken and shares_memory(passed, taken) else passed


def in_own_memory(value: Tensor, others: Collection[Tensor]) -> Tensor:
    """A value that is all of its memory, and alone in it."""
    is_part = storage_of(value)[1].nbytes() > value.nbytes
    return value.clone() if is_part or shares_memory(value, others) else value


def shares_memory(tensor: Tensor, others: Collection[Tensor]) -> bool:
    """Whether a tensor lies in the memory of another one."""
    return storage_of(tensor)[0] in {storage_of(other)[0] for other in others}


def passed_on(output: Tensor) -> Tensor:
    """Output of a layer as the next one receives it; its gradient comes back likewise.

    Not for the last layer: what enters the loss is neither sent nor received.
    """
    output = output.contiguous()
    if output.requires_grad:
        output.register_hook(Tensor.contiguous)  # type: ignore[no-untyped-call]
    return output
