"""Trains from the first step to the last, between two steps open to what happens.

before each step    asked to stop?  ->  save, leave
                    time to save?   ->  copy, go on
                    a revision that all ranks have?  ->  move layers, go on
after each step     progress, report where there is news
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_trainer.devices.peaks import PeakWatch
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.training import StepResult, Trainer
from plimsoll_trainer.errors import NotSavedError, WorkloadError
from plimsoll_trainer.process.checkpointing import Checkpointing
from plimsoll_trainer.process.revisions import Revisions
from plimsoll_trainer.process.stopping import StopSignal
from plimsoll_trainer.reporting.console import Progress, StepFigures, say
from plimsoll_trainer.reporting.reports import Reporter


@dataclass(kw_only=True)
class Session:
    """One attempt of a job on one rank; all ranks do the same together."""

    trainer: Trainer
    control: Control
    checkpoints: Checkpointing
    revisions: Revisions
    reporter: Reporter
    watch: PeakWatch
    stop: StopSignal
    num_steps: int
    clock: Callable[[], float] = time.monotonic
    has_warned: bool = False
    has_left_out: bool = False

    def run(self, first_step: int) -> ExitCode:
        """Train; return how it ended.

        Raises:
            NotSavedError: asked to stop, with nowhere to save.
            CheckpointError: the last checkpoint could not be saved.
            WorkloadError: nothing of a step counts, or it counts what is no number.
        """
        progress = Progress(sys.stdout) if self.control.rank == 0 else None
        self.reporter.observe("start")
        self.revisions.wait_if_short(self.watch.capacity_bytes, self.stop)
        for step in range(first_step, self.num_steps):
            (stopped, busy), known = self.control.least_of(
                self.revisions.newest, self.stop.is_set, self.checkpoints.is_busy
            )
            if stopped:
                return self._leave(step)
            self.checkpoints.boundary(step, any_busy=busy)
            self.revisions.boundary(step, known)
            self._run_step(step, progress)
        self.checkpoints.finish(self.num_steps)
        self.reporter.observe("end")
        return ExitCode.DONE

    def _run_step(self, step: int, progress: Progress | None) -> None:
        """Run one step and report it."""
        begin_s = self.clock()
        result = self.trainer.run_step(step)
        loss = float(result.loss)  # waits for the device, so that the time is real
        check_count(float(result.count), step + 1)
        norm = result.gradient_norm
        step_s = self.clock() - begin_s
        if not result.is_left_out:
            self._warn_of(loss, step + 1)
        self._warn_of_scale(result, step + 1)
        figures = StepFigures(
            step=step + 1,
            num_steps=self.num_steps,
            loss=loss,
            gradient_norm=None if norm is None else float(norm),
            step_s=step_s,
            peak_bytes=max(self.watch.device_bytes.values()),
        )
        if progress is not None:
            progress.show(figures)
            self.reporter.event(
                "step",
                step=figures.step,
                loss=figures.loss,
                gradient_norm=figures.gradient_norm,
                step_s=step_s,
                **scale_of(result),
            )
        self.reporter.after_step(step + 1, step_s, self.trainer.timer.take())

    def _leave(self, step: int) -> ExitCode:
        """Save and leave, as asked."""
        if not self.checkpoints.saves:
            raise NotSavedError(
                f"stopped before step {step + 1} as asked, and nothing is saved: give "
                "--checkpoint-dir to resume from there next time"
            )
        self.checkpoints.finish(step)
        self._say(
            f"stopped after step {step} as asked, and saved: start again with the same "
            "--checkpoint-dir to go on"
        )
        self.reporter.observe("end")
        return ExitCode.CHECKPOINTED

    def _warn_of(self, loss: float, step: int) -> None:
        """Warn once that the loss is no number any more."""
        if not (math.isfinite(loss) or self.has_warned):
            self.has_warned = True
            self._say(
                f"the loss of step {step} is {loss}, and will hardly recover: lower "
                "the learning rate, or look at the batch of that step"
            )

    def _warn_of_scale(self, result: StepResult, step: int) -> None:
        """Warn once that steps are left out, and once that the scale will not do."""
        if result.loss_scale is None or not result.is_left_out:
            return
        next_scale = result.loss_scale * self.trainer.workload.loss_scaling.backoff
        if not self.has_left_out:
            self.has_left_out = True
            self._say(
                f"gradients of step {step} are not finite in fp16 with the loss scaled "
                f"by {result.loss_scale:g}: the step is left out, the next scale is "
                f"{next_scale:g}; later steps are not named"
            )
        if next_scale < 1 <= result.loss_scale:
            self._say(
                f"the scale of the loss falls below 1 at step {step}: fp16 does not "
                "hold what this model computes; train it in bf16"
            )

    def _say(self, text: str) -> None:
        """Write one line for people, once for all ranks."""
        if self.control.rank == 0:
            say(0, text)


def scale_of(result: StepResult) -> dict[str, object]:
    """Fields of a report where the loss is scaled."""
    if result.loss_scale is None:
        return {}
    return {"loss_scale": result.loss_scale, "is_left_out": result.is_left_out}


def check_count(count: float, step: int) -> None:
    """Refuse a step, counted from 1, whose gradients were divided by nothing.

    Raises:
        WorkloadError: its count is 0, not finite, or was below 0 in a micro-batch.
    """
    if count == 0:
        raise WorkloadError(
            f"the loss counts 0 in all of step {step}, so nothing is trained: let "
            "every global batch have a sample that counts"
        )
    if not math.isfinite(count):
        raise WorkloadError(
            f"the loss counts what is not finite or below 0 in step {step}, so nothing "
            "can be divided by it: return the sum over what counts, and how many count"
        )
