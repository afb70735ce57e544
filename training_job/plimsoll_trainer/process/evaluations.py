"""When the model is evaluated, what came of it, and whether it still gets better.

    after a step    due?  ->  evaluate, report  ->  as often no better as is allowed?
    after the last  evaluated just now?  ->  else evaluate, report

What is known so far is part of each checkpoint, so an attempt that goes on counts on.
All ranks find the same losses, and so the same answer. Called by `session`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.callbacks import EvaluationMetrics
from plimsoll_trainer.checkpoint.manifest import LoopState
from plimsoll_trainer.devices.peaks import PeakWatch
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.evaluation import EarlyStop, Evaluation

Evaluate = Callable[[Evaluation, int], tuple[Tensor, Tensor]]
"""(samples, steps finished) -> the mean loss, and what it is over, on every rank."""


@dataclass(kw_only=True)
class Evaluations:
    """The evaluations of one attempt; all ranks call each method together."""

    wanted: Evaluation | None
    """Those that the workload asks for."""
    evaluate: Evaluate
    watch: PeakWatch
    clock: Callable[[], float] = time.monotonic

    def is_due(self, step: int, known: LoopState, *, is_last: bool) -> bool:
        """Whether one follows step `step`, counted from 1."""
        if self.wanted is None or known.evaluated_step == step:
            return False
        return is_last or self.wanted.is_due(step)

    def run(self, step: int) -> EvaluationMetrics:
        """Evaluate after a step; nothing is known of earlier ones.

        Raises:
            WorkloadError: nothing counts.
        """
        assert self.wanted is not None  # noqa: S101 - `is_due` comes first
        begin_s = self.clock()
        self.watch.begin(Phase.EVALUATION)
        loss, count = self.evaluate(self.wanted, step)
        found, counted = float(loss), float(count)  # waits for the device
        self.watch(Phase.EVALUATION)
        if not counted > 0:
            raise WorkloadError(
                f"the loss counts {counted:g} in all samples of the evaluation: give "
                "samples that count"
            )
        return EvaluationMetrics(
            step=step,
            loss=found,
            count=counted,
            num_samples=self.wanted.number,
            evaluation_s=self.clock() - begin_s,
            best_step=step,
            best_loss=found,
            num_worse=0,
        )

    def has_stopped(self, known: LoopState) -> bool:
        """Whether it got no better for as long as is allowed."""
        wanted = None if self.wanted is None else self.wanted.early_stop
        return wanted is not None and known.num_worse >= wanted.patience


def judged(
    figures: EvaluationMetrics, known: LoopState, early_stop: EarlyStop | None
) -> tuple[EvaluationMetrics, LoopState]:
    """An evaluation beside those before it, and all that is known then."""
    least = 0.0 if early_stop is None else early_stop.min_delta
    is_better = math.isfinite(figures.loss) and (
        not known.best_step or figures.loss < known.best_loss - least
    )
    now = replace(
        known,
        evaluated_step=figures.step,
        best_step=figures.step if is_better else known.best_step,
        best_loss=figures.loss if is_better else known.best_loss,
        num_worse=0 if is_better else known.num_worse + 1,
    )
    beside = replace(
        figures,
        best_step=now.best_step,
        best_loss=now.best_loss,
        num_worse=now.num_worse,
    )
    return beside, now
