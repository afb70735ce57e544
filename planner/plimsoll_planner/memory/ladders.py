"""Least seconds that recomputing adds to many runs of layers, by one binary search.

In: options of all runs, micro-batches in flight, room of each run. Out: seconds of each
run. Called by `stage_peaks.least_seconds` if options of many runs are to be searched.

A step is a stretch of options of one run whose seconds T do not fall. With k in flight
an option needs Q + (k - 1) S; let n be the least that it or one before it in its step
needs, which never rises along a step. Let every step lie lower than the one before by
more than n and room can be. Then n never rises over all options, and one search finds
for each step the first option that has room, which is the quickest one of its step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.chain_bytes import Ints
from plimsoll_planner.records.bounds import LARGEST_DEVICE_BYTES

Floats = NDArray[np.float64]
MOST_NEEDED = LARGEST_DEVICE_BYTES + 1
"""Above every room."""
HEIGHT = MOST_NEEDED + 2
"""Of a step, above all from -1 to the most needed."""

MOST_KEPT = 16
"""Ladders of the options of a chain."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Steps:
    """Steps of the options of all runs."""

    seconds: Floats
    """[option]"""
    begins: Ints
    """[step]: its first option; behind the last step, how many options there are."""
    of_option: Ints
    """[option]: its step."""
    of_run: Ints
    """[run]: its first step."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ladder:
    """Options of all steps with some micro-batches in flight."""

    steps: Steps
    depths: Ints
    """[option]: how far n lies below the top; never falls."""

    def seconds_within(self, room: Ints) -> Floats:
        """[run]: least seconds of the options that have room, or infinity."""
        steps = self.steps
        ends, first = steps.begins[1:], steps.of_run
        sizes = np.diff(np.append(first, len(ends)))
        of_steps = np.repeat(np.clip(room, -1, MOST_NEEDED - 1), sizes)
        wanted = HEIGHT * np.arange(len(ends)) - of_steps
        places = np.searchsorted(self.depths, wanted)
        found = steps.seconds[np.minimum(places, len(steps.seconds) - 1)]
        return np.minimum.reduceat(np.where(places < ends, found, np.inf), first)


def steps_of(run: Ints, seconds: Floats) -> Steps:
    """Steps of options in the order of their runs, of which `run` is the number."""
    begins = np.ones(len(run), dtype=np.bool_)
    begins[1:] = (run[1:] != run[:-1]) | (seconds[1:] < seconds[:-1])
    starts = np.flatnonzero(begins)
    return Steps(
        seconds=seconds,
        begins=np.append(starts, len(run)),
        of_option=np.cumsum(begins) - 1,
        of_run=np.unique(run[starts], return_index=True)[1],
    )


def ladder(steps: Steps, needed: Ints) -> Ladder:
    """Ladder of options that need so many bytes."""
    clipped = np.minimum(needed, MOST_NEEDED)
    depths = np.maximum.accumulate(HEIGHT * steps.of_option - clipped)
    return Ladder(steps=steps, depths=depths)


class Ladders:
    """Ladders of the options of a chain, by micro-batches in flight; a few are kept."""

    def __init__(self) -> None:
        """Begin with none."""
        self._kept: dict[int, Ladder] = {}

    def once(self, in_flight: int, make: Callable[[], Ladder]) -> Ladder:
        """Ladder with so many in flight, made unless it is kept."""
        if in_flight not in self._kept:
            if len(self._kept) == MOST_KEPT:
                self._kept.clear()
            self._kept[in_flight] = make()
        return self._kept[in_flight]

    @property
    def num_bytes(self) -> int:
        """Room that they take."""
        return sum(each.depths.nbytes for each in self._kept.values())
