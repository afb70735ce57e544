"""One optimizer for each layer, stepped one after the other.

What a step holds on top of the state (a copy in fp32, lists of temporaries) is then
that of the largest layer instead of the whole stage, and a layer carries its state
along when it moves. In bf16 and fp16 the optimizer works on master weights in fp32,
unless the workload wants none:

    gradient in fp32, or a copy of one in bf16 -> step on the master -> parameter bf16
    gradient in bf16, or a copy of one in fp32 -> step on the parameter, without masters
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.gradients import gradient_of
from plimsoll_trainer.workload import MakeOptimizer


class LayerOptimizer:
    """The optimizer of one layer's parameters, where they are."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        make: MakeOptimizer,
        least: torch.dtype = torch.float32,
    ) -> None:
        """Make the optimizer on the parameters, or on copies of those that are smaller.

        `least` is the smallest type that it steps on.
        """
        self.parameters = list(parameters)
        self.masters = [
            p if p.itemsize >= least.itemsize else nn.Parameter(p.detach().to(least))
            for p in self.parameters
        ]
        self.optimizer = make(self.masters)
        self.base_rates = [group["lr"] for group in self.optimizer.param_groups]

    def begin(self) -> None:
        """Bring here what a step reads, which is here already."""

    @torch.no_grad()
    def step(self, learning_rate_factor: float) -> None:
        """Step on the gradients in place, then set them to zero."""
        self.update(learning_rate_factor)
        for parameter in self.parameters:
            if (gradient := gradient_of(parameter)) is not None:
                gradient.zero_()

    @torch.no_grad()
    def update(self, learning_rate_factor: float) -> None:
        """Step on the gradients, which stay."""
        for group, rate in zip(
            self.optimizer.param_groups, self.base_rates, strict=True
        ):
            group["lr"] = rate * learning_rate_factor
        pairs = list(zip(self.masters, self.parameters, strict=True))
        lent = []
        for master, parameter in pairs:
            gradient = gradient_of(parameter)
            if gradient is not None and gradient is not master.grad:
                master.grad = gradient.to(master.dtype)
                lent.append(master)
        self.optimizer.step()
        for master in lent:
            master.grad = None
        for master, parameter in pairs:
            if master is not parameter:
                parameter.copy_(master)

    def read_parameters(self) -> None:
        """Take over parameters that something else has written, as they are."""


def squared_norm(gradients: Iterable[Tensor], device: torch.device) -> Tensor:
    """Sum of squares of all gradients, a scalar in fp32."""
    total = torch.zeros((), dtype=torch.float32, device=device)
    for gradient in gradients:
        total += torch.linalg.vector_norm(gradient, dtype=torch.float32) ** 2
    return total


@torch.no_grad()
def scale(gradients: Iterable[Tensor], factor: float | Tensor) -> None:
    """Multiply gradients in place."""
    for gradient in gradients:
        gradient.mul_(factor)
