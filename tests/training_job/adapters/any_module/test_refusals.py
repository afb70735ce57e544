"""What from_module refuses: the cause, its line, and what to do."""

from __future__ import annotations

import math
import random
import re
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_trainer.adapters.any_module import from_module
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import AdamW


class Base(nn.Module):
    """A layer to train."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.layer = nn.Linear(4, 4)


class Branch(Base):
    """Asks for a number."""

    def forward(self, x: Tensor) -> Tensor:
        """Two ways."""
        y: Tensor = self.layer(x)
        if y.sum() > 0:  # the line
            return y
        return -y


class FixedView(Base):
    """Runs with a multiple of some samples."""

    def forward(self, x: Tensor) -> Tensor:
        """Write the number of samples as a constant."""
        y: Tensor = self.layer(x)
        return y + torch.ones(7, 1)  # the line


class Several(Base):
    """Returns two tensors."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """By name."""
        y = self.layer(x)
        return {"logits": y, "hidden": x}


class Frozen(Base):
    """Has nothing to train."""

    def __init__(self) -> None:
        """Freeze it."""
        super().__init__()
        self.requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = self.layer(x)
        return y


class Double(torch.autograd.Function):
    """Has a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Twice."""
        del ctx
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Not at all."""
        del ctx
        return grads[0] * 0


class OwnGradient(Base):
    """Calls it."""

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = Double.apply(self.layer(x))
        return y


class Number(Base):
    """Scales by a number that it has read."""

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = self.layer(x)
        return y * y.abs().max().item()  # the number


class Size(Base):
    """Has as many rows as numbers are positive."""

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = self.layer(x)
        return y + torch.nonzero(y > 0).float().mean()  # the size


class Lottery(Base):
    """Draws by Python."""

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = self.layer(x)
        return y * random.random()  # noqa: S311 - no secret


class Unused(Base):
    """Leaves an input out."""

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        """Run it."""
        del other
        y: Tensor = self.layer(x)
        return y


class Foreign(Base):
    """Fails for a cause of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """Raise."""
        raise KeyError("lost", x.shape)


class Data(Base):
    """Writes through `.data`: to its output, a parameter or a buffer."""

    mean: Tensor
    layer: nn.Linear

    def __init__(self, kind: str) -> None:
        """Build it."""
        super().__init__()
        self.kind = kind
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = self.layer(x).clone()
        own = {"value": y, "weight": self.layer.weight, "mean": self.mean}
        own[self.kind].data.mul_(2.0)  # the write
        return y + self.mean


class Assigned(Base):
    """Puts another tensor in the place of a buffer, or of a plain attribute."""

    mean: Tensor

    def __init__(self, *, is_plain: bool = False) -> None:
        """Build it."""
        super().__init__()
        if is_plain:
            self.mean = torch.zeros(4)
        else:
            self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = self.layer(x)
        self.mean = self.mean * 0.9 + y.detach().mean(0)
        return y + self.mean


class AssignedAlias(Assigned):
    """Puts another tensor in the place of a buffer by its second name."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.state = self.mean

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = self.layer(x) + self.state
        self.state = self.state * 0.9 + y.detach().mean(0)
        return y


class Overwritten(Base):
    """Keeps a parameter above 0."""

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        with torch.no_grad():
            self.layer.weight.clamp_(min=0)  # the clamp
        y: Tensor = self.layer(x)
        return y


class Hooked(Base):
    """Scales the gradient of a value, or of a parameter."""

    def __init__(self, name: str = "", *, once: bool = False) -> None:
        """Hook a parameter."""
        super().__init__()
        if name and once:
            self.hooked(name).register_post_accumulate_grad_hook(print)
        elif name:
            self.hooked(name).register_hook(lambda one: one * 0.1)

    def hooked(self, name: str) -> Any:
        """A parameter."""
        return self.layer.get_parameter(name)

    def forward(self, x: Tensor) -> Tensor:
        """Hook its output."""
        y: Tensor = self.layer(x)
        y.register_hook(lambda one: one * 0.1)  # type: ignore[no-untyped-call] # hooked
        return y


class Force(Base):
    """Is the derivative of an energy."""

    def forward(self, x: Tensor) -> Tensor:
        """Ask autograd."""
        y: Tensor = self.layer(x)
        (made,) = torch.autograd.grad(y.tanh().sum(), y, create_graph=True)  # asked
        return made


class Inference(Base):
    """Trains nothing by half of its output."""

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        with torch.inference_mode():  # the mode
            half: Tensor = self.layer(x)
        y: Tensor = self.layer(x)
        return y + half


class PythonRoot(Base):
    """Gives the number of samples to Python."""

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = self.layer(x)
        return y / math.sqrt(x.shape[0])  # the root


class Remembering(Base):
    """Adds what the last step had, if there was one."""

    last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y: Tensor = self.layer(x)
        before, self.last = self.last, y.detach()
        return y if before is None else y + before


X = torch.zeros(3, 4)
REFUSED = [
    (Branch(), X, {}, r"Branch asks for the numbers in a tensor at .*the line"),
    (Number(), X, {}, r"Number asks for the numbers in a tensor at .*the number"),
    (Size(), X, {}, r"Size asks for the numbers in a tensor at .*the size"),
    (Lottery(), X, {}, r"draws random numbers from Python or numpy.*by torch"),
    (FixedView(), X, {}, r"FixedView runs with one number .*\(return y \+ .*the line"),
    (Several(), X, {}, r"2 tensors, 'logits', 'hidden': name the one"),
    (Several(), X, {"output": "scores"}, r"output 'scores' is no tensor"),
    (Frozen(), X, {}, r"Frozen has no parameter that is trained"),
    (OwnGradient(), X, {}, r"calls Double, a torch.autograd.Function"),
    *(
        (
            partial(Data, kind) if is_built else Data(kind),
            X,
            {},
            r"Data reads or writes through \.data at .*the write\).*no_grad\(\) inst",
        )
        for kind in ("value", "weight", "mean")
        for is_built in (False, True)
    ),
    *(
        (one, X, {}, r"assigns self\.mean, .* write in place, self\.mean\.copy_")
        for one in (Assigned(), Assigned(is_plain=True), AssignedAlias())
    ),
    (Overwritten(), X, {}, r"'layer.weight' by .*the clamp\): only the optimizer may"),
    (Hooked(), X, {}, r"registers a hook on a gradient, .*# hooked\): leave it out"),
    (Hooked("bias"), X, {}, r"'layer.bias' has a hook on its gradient.*: remove it"),
    (lambda: Hooked("bias"), X, {}, r"'layer.bias' has a hook on its gradient"),
    (Hooked("bias", once=True), X, {}, r"'layer.bias' has a hook on its gradient"),
    (Force(), X, {}, r"asks autograd for gradients, .*# asked\): write their formula"),
    (
        PythonRoot(),
        X,
        {},
        r"function of Python, as math.sqrt at .*the root\).* \*\* 0.5",
    ),
    (Unused(), (X, X), {}, r"input 1 of the module .* leave it out"),
    (Foreign(), X, {}, r"Foreign cannot be captured .*lost.*KeyError\(\"lost\", x"),
    (Frozen(), (), {}, r"example_inputs is empty"),
    (Unused(), (X, torch.zeros(2, 4)), {}, r"input 1 has 2 samples and input 0 has 3"),
    (Unused(), (X, torch.tensor(1.0)), {}, r"example input 1 is a scalar"),
    (Unused(), (X, 3), {}, r"example input 1 is of type int"),
    (Several(), X, {"arguments": ("x", "y")}, r"arguments names 2 inputs, x, y"),
    (lambda: 3, X, {}, r"a function that returns int: give an nn.Module"),
    (lambda: nn.Linear(2, -1), X, {}, r"the function that builds the module fails"),
    (Several(), X, {"most_layers": 0, "output": "logits"}, r"most_layers 0 is below 1"),
]


@pytest.mark.parametrize(("module", "inputs", "fields", "message"), REFUSED)
def test_it_is_refused_in_one_line(
    module: Any, inputs: Any, fields: dict[str, Any], message: str
) -> None:
    """With the name of what is wrong, and what to do."""
    with pytest.raises(WorkloadError, match=message) as raised:
        from_module(
            module,
            inputs,
            loss=functional.mse_loss,
            batch=lambda *_: (X, X),
            optimizer=AdamW(),
            **fields,
        )
    assert re.match(r"^[^\n]*$", str(raised.value))


def test_what_later_steps_may_read_is_warned_of() -> None:
    """One step alone is captured, in which there was none."""
    with pytest.warns(
        UserWarning, match=r"of Remembering assigns self\.last, .*buffer"
    ):
        from_module(
            Remembering(),
            X,
            loss=functional.mse_loss,
            batch=lambda *_: (X, X),
            optimizer=AdamW(),
        )
