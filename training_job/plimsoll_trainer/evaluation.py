"""Evaluation of a model while it trains: on which samples, how often, when to stop.

In: numbers and data of the user's. Out: what `Workload.evaluation` holds. The trainer
runs it (`engine.evaluating`) and judges the losses (`process.evaluations`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from plimsoll_trainer.errors import WorkloadError

Pair = tuple[Any, Tensor]
"""Inputs, a tensor or a tuple of several, and targets."""
MakeSamples = Callable[[int, int, int], Pair]
"""As `workload.MakeBatch`; the step is always 0 here."""


def stacked(pairs: Sequence[Pair]) -> Pair:
    """Inputs and targets of some samples, of shape [number of samples, ...] each."""
    inputs, targets = zip(*pairs, strict=True)
    if isinstance(inputs[0], tuple):
        parts = tuple(torch.stack(part) for part in zip(*inputs, strict=True))
        return parts, torch.stack(targets)
    return torch.stack(inputs), torch.stack(targets)


class Samples(Protocol):
    """A data set of a length, for training too; those of torch are some, of pairs."""

    def __len__(self) -> int:
        """Number of samples."""
        ...

    def __getitem__(self, index: int, /) -> Pair:
        """Input and target of one sample."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyStop:
    """When training ends before its last step, because it gets no better.

    Raises:
        WorkloadError: the numbers make no sense.
    """

    patience: int
    """Evaluations in a row that may bring no improvement; the last of them ends it."""
    min_delta: float = 0.0
    """By how much a loss has to be below the best one before to be an improvement."""

    def __post_init__(self) -> None:
        """Refuse what would stop at once, or never."""
        if self.patience < 1:
            raise WorkloadError(
                f"early stop has patience {self.patience}: give the evaluations "
                "without an improvement to stop after, at least 1"
            )
        if not 0 <= self.min_delta < math.inf:
            raise WorkloadError(
                f"early stop has min_delta {self.min_delta}: give the least "
                "improvement of the loss that counts, 0 or more"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Passes forward on data of their own, without gradients, dropout or statistics.

    Raises:
        WorkloadError: the numbers make no sense, or nobody knows how many samples.
    """

    data: MakeSamples | Samples
    """A data set, or a function like `Workload.batch` that is asked for step 0."""
    num_samples: int | None = None
    """The first so many; None: all of a data set that has a length."""
    every_steps: int = 0
    """Steps between two evaluations; 0: at the end alone, where there is one always."""
    early_stop: EarlyStop | None = None

    def __post_init__(self) -> None:
        """Refuse an evaluation of nothing."""
        if self.every_steps < 0:
            raise WorkloadError(
                f"evaluation has every_steps {self.every_steps}: give a number of "
                "steps, or 0 to evaluate at the end alone"
            )
        if self.early_stop is not None and not self.every_steps:
            raise WorkloadError(
                "early stop looks at evaluations, and without every_steps there is "
                "one at the end alone: give every_steps as well"
            )
        if self.num_samples is None and not hasattr(self._sized(), "__len__"):
            raise WorkloadError(
                "evaluation has data without a length, so all of it has no end: give "
                "num_samples"
            )

    def _sized(self) -> object:
        """Part of the data that may have a length."""
        return getattr(self.data, "samples", self.data)

    @property
    def number(self) -> int:
        """Samples of one evaluation.

        Raises:
            WorkloadError: there are none, or fewer than were asked for.
        """
        sized, wanted = self._sized(), self.num_samples
        length = len(sized) if isinstance(sized, Sized) else cast("int", wanted)
        number = length if wanted is None else wanted
        if number > length:
            raise WorkloadError(
                f"evaluation has num_samples {number}, and its data {length} samples: "
                "give more data, or a lower num_samples"
            )
        if number < 1:
            raise WorkloadError(
                f"evaluation has {number} samples, so it has no loss: give some, or "
                "no evaluation"
            )
        return number

    def batch(self, step: int, first: int, count: int) -> Pair:
        """Samples of the evaluation, of shape [count, ...] each; a `MakeBatch`."""
        if callable(self.data):
            return self.data(step, first, count)
        return stacked([self.data[first + place] for place in range(count)])

    def is_due(self, step: int) -> bool:
        """Whether one follows step `step`, counted from 1."""
        return self.every_steps > 0 and step % self.every_steps == 0
