"""What can go wrong while profiling, as a tree; every message is one line.

    PlimsollError                   (plimsoll_planner.errors)
    └── ProfilerError               ends the profiling run
        └── TooFewProbesError       not enough runs ended well to fit a line

The entry point catches `ProfilerError`, prints its text and exits with FAILED.
"""

from __future__ import annotations

from plimsoll_planner.errors import PlimsollError


class ProfilerError(PlimsollError):
    """Ends a profiling run."""


class TooFewProbesError(ProfilerError):
    """A line over the micro-batch needs two different micro-batches."""
