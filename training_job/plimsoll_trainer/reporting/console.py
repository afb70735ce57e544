"""Output of a rank for people: lines on stderr, and the progress on stdout.

    plimsoll: rank 2: what happened, with which values, and what to do
    step 12/200  loss 3.1234  norm 0.52  0.231 s/step  peak 1.25 GiB

Progress is rewritten in place on a terminal; where nobody watches, as in the log of a
pod, it is a line every few seconds.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from plimsoll_planner.errors import one_line
from plimsoll_planner.units import at_least

LINE_EVERY_S = 10.0
"""Seconds between lines of progress in a log."""
REDRAW_EVERY_S = 0.1
"""Seconds between changes on a terminal."""


def say(rank: int | None, text: str) -> None:
    """Write one whole line to stderr; None where the rank is not known."""
    who = "" if rank is None else f"rank {rank}: "
    with contextlib.suppress(OSError):  # a full disk behind a log ends no training
        sys.stderr.write(f"plimsoll: {who}{one_line(text)}\n")
        sys.stderr.flush()


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFigures:
    """Figures of a step for people."""

    step: int
    """Steps finished."""
    num_steps: int
    loss: float
    gradient_norm: float | None
    step_s: float
    peak_bytes: int
    """Of this rank's device so far."""

    def __str__(self) -> str:
        """One line."""
        norm = "" if self.gradient_norm is None else f"  norm {self.gradient_norm:.3g}"
        return (
            f"step {self.step}/{self.num_steps}  loss {self.loss:.4f}{norm}  "
            f"{self.step_s:.3g} s/step  peak {at_least(self.peak_bytes)}"
        )


class Progress:
    """Shows how far training is."""

    def __init__(
        self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Show on a terminal, a pipe or a file."""
        self._stream = stream
        self._clock = clock
        self._in_place = stream.isatty()
        self._every_s = REDRAW_EVERY_S if self._in_place else LINE_EVERY_S
        self._shown_s = float("-inf")
        self._works = True

    def show(self, figures: StepFigures) -> None:
        """Show a step, unless one was shown a moment ago; the last one always is."""
        is_last = figures.step >= figures.num_steps
        now_s = self._clock()
        if not is_last and now_s - self._shown_s < self._every_s:
            return
        self._shown_s = now_s
        if self._in_place:
            self._write(f"\r\x1b[K{figures}" + ("\n" if is_last else ""))
        else:
            self._write(f"{figures}\n")

    def _write(self, text: str) -> None:
        """Write; a reader that went away ends the showing, not the training."""
        if not self._works:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            self._works = False
