"""Least seconds that recomputing adds to many runs of layers, by one binary search.

In: options of all runs, micro-batches in flight, room of each run. Out: seconds of each
run. Called by `stage_peaks.least_seconds` if options of many runs are to be searched.

Options of a run are put in the order of their seconds T. With k in flight an option
needs Q + (k - 1) S; let n be the least that it or one before it in its run needs, which
never rises along a run. Let every run lie lower than the one before by more than n and
room can be. Then n never rises over all options, and one search finds for each run the
first option that has room, which is its quickest one.
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
"""Of a run, above all from -1 to the most needed."""

MOST_KEPT = 16
"""Ladders of the options of a chain."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ladder:
    """Options with some micro-batches in flight that need less than those before."""

    depths: Ints
    """[option]: how far n lies below the top; rises."""
    seconds: Floats
    """[option]: T."""

    def seconds_within(self, runs: Ints, room: Ints) -> Floats:
        """Of some runs, the least seconds of the options that have room, or infinity.

        There is one room for each of these runs.
        """
        tops = HEIGHT * runs
        wanted = tops - np.clip(room, -1, MOST_NEEDED - 1)
        places = np.searchsorted(self.depths, wanted)
        places = np.minimum(places, len(self.depths) - 1)
        depths = self.depths[places]
        is_there = (wanted <= depths) & (depths <= tops)
        return np.where(is_there, self.seconds[places], np.inf)

    @property
    def num_bytes(self) -> int:
        """Room that it takes."""
        return self.depths.nbytes + self.seconds.nbytes


def ladder(run: Ints, needed: Ints, seconds: Floats) -> Ladder:
    """Ladder of options that need so many bytes.

    Options come in the order of their runs, of which `run` is the number, and those of
    each run in the order of their seconds.
    """
    clipped = np.minimum(needed, MOST_NEEDED)
    depths = np.maximum.accumulate(HEIGHT * run - clipped)
    rises = np.append(True, depths[1:] > depths[:-1])
    return Ladder(depths=depths[rises], seconds=seconds[rises])


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
        return sum(each.num_bytes for each in self._kept.values())
