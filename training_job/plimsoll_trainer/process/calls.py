"""Calls of a user's callbacks between steps, on rank 0.

In: `Workload.callbacks`, objects or names of functions that make one. Out: an error
that names the callback, if it raises. Called by `session`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_trainer.callbacks import EvaluationMetrics, RunEnd, RunStart, StepMetrics
from plimsoll_trainer.errors import THEIR_ERRORS, CallbackError, TrainerError, located
from plimsoll_trainer.user_code.entrypoint import function_named

METHODS = ("on_start", "on_step", "on_evaluation", "on_end")


@dataclass(frozen=True, slots=True)
class Calls:
    """The callbacks of an attempt; without any where it is another rank."""

    callbacks: Sequence[object] = ()

    @classmethod
    def of(cls, wanted: Sequence[object], rank: int) -> Calls:
        """Those that a workload wants, on rank 0.

        Raises:
            WorkloadError: there is no function of that name.
            CallbackError: a function raises, or something has no method to call.
        """
        return cls([made(one) for one in wanted] if rank == 0 else ())

    def on_start(self, run: RunStart) -> None:
        """Tell all."""
        self._call("on_start", run)

    def on_step(self, figures: StepMetrics) -> None:
        """Tell all."""
        self._call("on_step", figures)

    def on_evaluation(self, figures: EvaluationMetrics) -> None:
        """Tell all."""
        self._call("on_evaluation", figures)

    def on_end(self, end: RunEnd) -> None:
        """Tell all."""
        self._call("on_end", end)

    def _call(self, method: str, about: object) -> None:
        """Call each callback that has a method.

        Raises:
            CallbackError: one raised; the others are not called.
        """
        for one in self.callbacks:
            function = getattr(one, method, None)
            if function is None:
                continue
            try:
                function(about)
            except TrainerError as error:
                raise CallbackError(f"callback {name_of(one)}: {error}") from error
            except THEIR_ERRORS as error:
                raise CallbackError(
                    f"callback {name_of(one)} raises {located(error)} in {method}: "
                    "mend it, or leave it out"
                ) from error


def made(wanted: object) -> object:
    """A callback, from itself or from `module:function`."""
    found = wanted
    if isinstance(wanted, str):
        function = function_named(wanted)
        try:
            found = function()
        except TrainerError:
            raise
        except THEIR_ERRORS as error:
            raise CallbackError(
                f"callback {wanted} raises {located(error)} as it is made: mend it, "
                "or leave it out"
            ) from error
    if not any(hasattr(found, method) for method in METHODS):
        raise CallbackError(
            f"callback {name_of(found)} has no method that is called: give it one of "
            f"{', '.join(METHODS)}"
        )
    return found


def name_of(callback: object) -> str:
    """Name of a callback in a message."""
    return type(callback).__name__
