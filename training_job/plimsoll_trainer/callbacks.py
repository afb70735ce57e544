"""Callbacks: figures of a job that it passes on while it trains.

    on_start        before the first step of an attempt
    on_step         after each step
    on_evaluation   after each evaluation
    on_end          as an attempt ends, however it does

In: figures. A callback is any object with some of these methods, as
`Workload.callbacks` holds them; `metric_loggers` has some. They are called on rank 0
alone, between steps, while the other ranks wait: be quick. What one raises ends the
job, and names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStart:
    """An attempt that begins."""

    first_step: int
    """Steps finished before it."""
    num_steps: int
    """Of the whole job."""
    attempt: int
    checkpoint_dir: Path | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMetrics:
    """Figures of a step."""

    step: int
    """Steps finished."""
    loss: float
    gradient_norm: float | None
    """Before clipping; None where it is not clipped."""
    learning_rate_factor: float
    step_s: float
    samples_per_s: float
    peak_bytes: int
    """Of this rank's device so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationMetrics:
    """Figures of an evaluation."""

    step: int
    """Steps finished before it."""
    loss: float
    count: float
    """What the loss is the mean over: samples, or what they count."""
    num_samples: int
    evaluation_s: float
    best_step: int
    best_loss: float
    """So far, this one included."""
    num_worse: int
    """Evaluations in a row without an improvement."""


class Ending(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    EARLY = "stopped early"
    """It got no better: done as well."""
    CHECKPOINTED = "asked to stop"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnd:
    """An attempt that ends."""

    step: int
    """Steps finished."""
    ending: Ending
    message: str = ""
    """Why it failed."""


class Callback:
    """A callback that does nothing; those of users may be of any class."""

    def on_start(self, run: RunStart) -> None:
        """Hear of an attempt that begins."""

    def on_step(self, figures: StepMetrics) -> None:
        """Hear of a step."""

    def on_evaluation(self, figures: EvaluationMetrics) -> None:
        """Hear of an evaluation."""

    def on_end(self, end: RunEnd) -> None:
        """Hear of the end."""
