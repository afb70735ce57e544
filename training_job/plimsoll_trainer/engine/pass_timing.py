"""Seconds of a rank in its forward and backward passes.

Around each pass, so waits for other stages are left out: by them a planner sees which
stage sets the pace. On a GPU two events of its stream; elsewhere the clock.

In: passes, as they run. Out: seconds since the last time it was asked. Called by
`counting_stage` and, between two steps, by the session.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class PassTimer:
    """Adds up seconds of passes."""

    def __init__(self, device: torch.device) -> None:
        """Begin at 0."""
        self._is_cuda = device.type == "cuda"
        self._seconds = 0.0
        self._spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._num_open = 0
        """Of the spans, those that were entered since the seconds were taken."""

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count the time within it."""
        if self._is_cuda:
            begin, end = self._next_span()
            begin.record()
            yield
            end.record()
        else:
            begin_s = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - begin_s

    def _next_span(self) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """Two events; those of earlier steps are used again."""
        if self._num_open == len(self._spans):
            events = torch.cuda.Event(True), torch.cuda.Event(True)  # type: ignore[no-untyped-call]
            self._spans.append(events)
        self._num_open += 1
        return self._spans[self._num_open - 1]

    def take(self) -> float:
        """Seconds since the last call, once the device has done what is counted."""
        if self._num_open:
            spans, self._num_open = self._spans[: self._num_open], 0
            spans[-1][1].synchronize()
            self._seconds += sum(a.elapsed_time(b) for a, b in spans) / 1000
        found, self._seconds = self._seconds, 0.0
        return found
