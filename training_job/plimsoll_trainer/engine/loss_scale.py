"""The scale of a loss whose gradients are computed in fp16, as it follows overflows.

    backward pass    starts from scale x loss: the gradient of the loss is multiplied
    reduced          sums in fp32 are divided by the count and the scale, at once
    norm             not finite: the step is left out, and the scale is lowered
    otherwise        step; raised after so many in a row

The norm is that of all layers on all ranks, to the bit the same everywhere, so all
ranks decide alike, and as they would under any other plan; no rank asks another one.
Numbers and rules are those of `torch.amp.GradScaler`. The scale is a number of the
training, not of a rank: a checkpoint has it beside the step.

In: what a workload says of it. Called by `training`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from plimsoll_trainer.torch_internals.operators import FakeTensor
from plimsoll_trainer.workload import LossScaling, Workload


@dataclass(kw_only=True, slots=True)
class LossScale:
    """The scale of the next step."""

    rules: LossScaling
    value: float
    num_good: int = 0
    """Steps since it was last changed."""

    def follow(self, *, overflows: bool) -> None:
        """Note a step."""
        if overflows:
            self.value *= self.rules.backoff
            self.num_good = 0
            return
        self.num_good += 1
        if self.num_good == self.rules.steps_to_growth:
            self.value *= self.rules.growth
            self.num_good = 0


def loss_scale_of(workload: Workload) -> LossScale | None:
    """Scale of the first step; None where nothing is scaled."""
    if not workload.precision.is_scaled:
        return None
    rules = workload.loss_scaling
    return LossScale(rules=rules, value=rules.first)


def is_finite(norm: Tensor) -> bool:
    """Whether a norm is; waits for the device. One without a number counts as such."""
    return isinstance(norm, FakeTensor) or bool(norm.isfinite())


def scaled(scale: float, gradient: Tensor) -> Tensor:
    """Gradient of a loss that is scaled."""
    return gradient * scale
