"""Trains from the first step to the last, between two steps open to what happens.

before each step    asked to stop?  ->  save, leave
                    time to save?   ->  copy, go on
                    a revision that all ranks have?  ->  move layers, go on
after each step     progress, report where there is news, callbacks
                    time to evaluate?  ->  the loss on other data; no better?  ->  end
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_trainer.callbacks import (
    Ending,
    EvaluationMetrics,
    RunEnd,
    RunStart,
    StepMetrics,
)
from plimsoll_trainer.checkpoint.manifest import LONGEST_STATE
from plimsoll_trainer.devices.peaks import PeakWatch
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.training import StepResult
from plimsoll_trainer.errors import CallbackError, NotSavedError
from plimsoll_trainer.process.calls import Calls
from plimsoll_trainer.process.checkpointing import Checkpointing
from plimsoll_trainer.process.evaluations import Evaluations, judged
from plimsoll_trainer.process.losses import check_count, no_loss
from plimsoll_trainer.process.revisions import Revisions
from plimsoll_trainer.process.steps import Steps
from plimsoll_trainer.process.stopping import StopSignal
from plimsoll_trainer.reporting.console import Progress, StepFigures, say
from plimsoll_trainer.reporting.reports import Reporter


@dataclass(kw_only=True)
class Session:
    """One attempt of a job on one rank; all ranks do the same together."""

    trainer: Steps
    control: Control
    checkpoints: Checkpointing
    revisions: Revisions | None
    """None: the plan is not revised while it runs."""
    reporter: Reporter
    watch: PeakWatch
    stop: StopSignal
    num_steps: int
    evaluations: Evaluations
    calls: Calls = field(default_factory=Calls)
    clock: Callable[[], float] = time.monotonic
    has_warned: bool = False
    has_left_out: bool = False
    num_done: int = 0
    """Steps finished."""
    last_words: str = ""
    """The line that rank 0 is to end with; see `rules.endings` of the operator."""

    def run(self, first_step: int) -> ExitCode:
        """Train; return how it ended.

        Raises:
            NotSavedError: asked to stop, with nowhere to save.
            CheckpointError: the last checkpoint could not be saved.
            WorkloadError: nothing of a step counts, or it counts what is no number.
            NoLossError: the loss is not finite.
            CallbackError: a callback raised.
        """
        self.num_done = first_step
        options = self.checkpoints.options
        start = RunStart(
            first_step=first_step,
            num_steps=self.num_steps,
            attempt=options.attempt,
            checkpoint_dir=options.checkpoint_dir,
        )
        try:
            self.calls.on_start(start)
            ending = self._train(first_step)
        except Exception as error:
            if not isinstance(error, CallbackError):
                with suppress(CallbackError):  # there is a worse one
                    self._end(Ending.FAILED, str(error))
            raise
        finally:
            self.trainer.loader.close()
        self._end(ending)
        return ExitCode.CHECKPOINTED if ending is Ending.CHECKPOINTED else ExitCode.DONE

    def _end(self, ending: Ending, message: str = "") -> None:
        """Let callbacks know."""
        end = RunEnd(step=self.num_done, ending=ending, message=message)
        self.calls.on_end(end)

    def _train(self, first_step: int) -> Ending:
        """Run the steps that are left."""
        progress = Progress(sys.stdout) if self.control.rank == 0 else None
        self.reporter.observe("start")
        if self.revisions is not None:
            self.revisions.wait_if_short(self.watch.capacity_bytes, self.stop)
        for step in range(first_step, self.num_steps):
            if self.evaluations.has_stopped(self.checkpoints.loop):
                return self._stop_early(step)
            newest = 0 if self.revisions is None else self.revisions.newest
            (stopped, busy), known = self.control.least_of(
                newest, self.stop.is_set, self.checkpoints.is_busy
            )
            if stopped:
                return self._leave(step)
            self.checkpoints.boundary(step, any_busy=busy)
            if self.revisions is not None:
                self.revisions.boundary(step, known)
            self._run_step(step, progress)
            self.num_done = step + 1
            self._note_data()
            self._evaluate(step + 1, is_last=step + 1 == self.num_steps)
        self._evaluate(self.num_steps, is_last=True)
        self.checkpoints.finish(self.num_steps)
        self.reporter.observe("end")
        return Ending.DONE

    def _run_step(self, step: int, progress: Progress | None) -> None:
        """Run one step and report it."""
        begin_s = self.clock()
        result = self.trainer.run_step(step)
        loss = float(result.loss)  # waits for the device, so that the time is real
        check_count(float(result.count), step + 1)
        norm = result.gradient_norm
        step_s = self.clock() - begin_s
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
        self._check_loss(result, loss, step)
        self.calls.on_step(self._metrics_of(figures))

    def _metrics_of(self, figures: StepFigures) -> StepMetrics:
        """Figures of a step for callbacks."""
        trainer = self.trainer
        replicas = trainer.world.num_replicas
        num_samples = trainer.micro_batch * trainer.num_micro_batches * replicas
        return StepMetrics(
            step=figures.step,
            loss=figures.loss,
            gradient_norm=figures.gradient_norm,
            learning_rate_factor=trainer.workload.learning_rate_factor(
                figures.step - 1
            ),
            step_s=figures.step_s,
            samples_per_s=num_samples / max(figures.step_s, 1e-9),
            peak_bytes=figures.peak_bytes,
        )

    def _check_loss(self, result: StepResult, loss: float, step: int) -> None:
        """End at a loss that is not finite, or warn of it once.

        Raises:
            NoLossError: see above.
        """
        # What is left out may overflow; with no scale left to lower, it is lost.
        overflows = result.is_left_out and (result.loss_scale or 0.0) >= 1
        if math.isfinite(loss) or overflows:
            return
        if self.trainer.workload.stops_at_nan:
            good = self.checkpoints.last_good(step - 1)
            raise no_loss(f"step {step + 1}", loss, step, good)
        if not self.has_warned:
            self.has_warned = True
            self._say(
                f"the loss of step {step + 1} is {loss}, and will hardly recover: "
                "lower the learning rate, or look at the batch of that step"
            )

    def _note_data(self) -> None:
        """Let the next checkpoint know where data that has a position is."""
        state = self.trainer.loader.state
        state = state if len(state) <= LONGEST_STATE else ""
        self.checkpoints.loop = replace(self.checkpoints.loop, data=state)

    def _evaluate(self, step: int, *, is_last: bool) -> None:
        """Evaluate if it is time, and report it.

        Raises:
            NoLossError: the loss is not finite.
        """
        known = self.checkpoints.loop
        wanted = self.evaluations.wanted
        if wanted is None or not self.evaluations.is_due(step, known, is_last=is_last):
            return
        figures = self.evaluations.run(step)
        if not math.isfinite(figures.loss):
            if self.trainer.workload.stops_at_nan:
                good = self.checkpoints.last_good(step - 1)
                what = f"the evaluation after step {step}"
                raise no_loss(what, figures.loss, step, good)
            figures = replace(figures, loss=math.inf)
        figures, self.checkpoints.loop = judged(figures, known, wanted.early_stop)
        self._report(figures)

    def _report(self, figures: EvaluationMetrics) -> None:
        """Report an evaluation, once for all ranks."""
        best = "the best so far"
        if figures.best_step != figures.step:
            best = f"best {figures.best_loss:.4f} after step {figures.best_step}"
        self._say(
            f"evaluation after step {figures.step}: loss {figures.loss:.4f}, {best}; "
            f"{figures.num_samples} samples in {figures.evaluation_s:.3g} s"
        )
        if self.control.rank == 0:
            self.reporter.event(
                "evaluation",
                step=figures.step,
                loss=figures.loss,
                count=figures.count,
                best_step=figures.best_step,
                best_loss=figures.best_loss,
                evaluation_s=figures.evaluation_s,
            )
        self.calls.on_evaluation(figures)

    def _stop_early(self, step: int) -> Ending:
        """Save and end, for it gets no better."""
        known = self.checkpoints.loop
        self.checkpoints.finish(step)
        self.last_words = (
            f"stopped early, after step {step} of {self.num_steps}: the last "
            f"{known.num_worse} evaluations are no better than {known.best_loss:.4f} "
            f"after step {known.best_step}"
        )
        if self.control.rank == 0:
            self.reporter.event(
                "stopped_early",
                step=step,
                best_step=known.best_step,
                best_loss=known.best_loss,
            )
        self.reporter.observe("end")
        return Ending.EARLY

    def _leave(self, step: int) -> Ending:
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
        return Ending.CHECKPOINTED

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
