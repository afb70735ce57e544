"""Learning rates by step, by name.

    constant    1                                         behind the warmup
    linear      1 at its end, falling to the floor at the last step
    cosine      likewise, along half of a cosine

The last step is that of the job, unless `num_steps` names another: a process that
trains asks for `over` its steps, and until then a schedule knows its warmup alone.

In: a name and its numbers, from YAML. Out: a function of the step that a workload takes
as its `learning_rate_factor`; it can be pickled, as ranks may be started by copies of
it. Steps count from 0, and a warmup rises from 0 at step 0, as that of `transformers`
(`get_scheduler`), whose formulas these are; with a floor, what falls is the part of the
rate above it. Called by `recipes` of room `huggingface`, and by workloads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from plimsoll_trainer.errors import WorkloadError, one_of


class Shape(StrEnum):
    """Behind the warmup."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """Step -> factor on the learning rate, from 0 to 1.

    Raises:
        WorkloadError: a number is out of its bounds.
    """

    shape: Shape = Shape.CONSTANT
    num_steps: int = 0
    """Steps from the first to the floor; 0: those of the job."""
    warmup_steps: int = 0
    """First steps, in which the factor rises from 0."""
    floor: float = 0.0
    """Factor at the last step, and after it."""

    def __post_init__(self) -> None:
        """Refuse what makes no schedule."""
        if not 0.0 <= self.floor <= 1.0:
            raise WorkloadError(
                f"floor {self.floor} of the learning rate: give a factor from 0 to 1"
            )
        if self.warmup_steps < 0:
            raise WorkloadError(
                f"warmup_steps {self.warmup_steps} is below 0: give 0 for none"
            )
        if self.num_steps and self._falls and self.num_steps <= self.warmup_steps:
            raise WorkloadError(
                f"num_steps {self.num_steps} of a {self.shape} schedule is not above "
                f"warmup_steps {self.warmup_steps}: give the steps of the whole "
                "training, or leave num_steps out for those of the job"
            )

    @property
    def _falls(self) -> bool:
        """Whether the factor depends on the number of steps."""
        return self.shape is not Shape.CONSTANT

    def over(self, num_steps: int) -> Schedule:
        """The schedule of a job with so many steps; its own number wins.

        Raises:
            WorkloadError: the warmup is not over before the job is.
        """
        if self.num_steps or not self._falls:
            return self
        if num_steps <= self.warmup_steps:
            raise WorkloadError(
                f"warmup_steps {self.warmup_steps} of a {self.shape} schedule do not "
                f"end before the {num_steps} steps of the job: give fewer, or more "
                "steps"
            )
        return replace(self, num_steps=num_steps)

    def __call__(self, step: int) -> float:
        """Factor of a step, counted from 0."""
        if step < self.warmup_steps:
            return step / self.warmup_steps
        if not (self._falls and self.num_steps):
            return 1.0
        done = (step - self.warmup_steps) / (self.num_steps - self.warmup_steps)
        left = 1.0 - min(done, 1.0)
        if self.shape is Shape.COSINE:
            left = 0.5 * (1.0 - math.cos(math.pi * left))
        return self.floor + (1.0 - self.floor) * left


def schedule_named(
    name: str, *, num_steps: int = 0, warmup_steps: int = 0, floor: float = 0.0
) -> Schedule:
    """The schedule of a name.

    Raises:
        WorkloadError: there is none of the name, or a number is out of its bounds.
    """
    names = [shape.value for shape in Shape]
    if name not in names:
        raise WorkloadError(f"learning rate schedule {name!r}: {one_of(name, names)}")
    return Schedule(
        shape=Shape(name), num_steps=num_steps, warmup_steps=warmup_steps, floor=floor
    )
