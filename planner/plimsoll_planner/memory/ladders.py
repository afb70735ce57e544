"""Least seconds that recomputing adds to many runs of layers, by one binary search.

In: options of all runs, micro-batches in flight, room of each run. Out: seconds of each
run. Called by `stage_peaks.least_seconds` if options of many runs are to be searched.

Options of a run are put in the order of their seconds T, without those that one
before them beats in S and Q. With k in flight an option needs Q + (k - 1) S; let n be
the least that it or one before it in its run needs, which never rises along a run.
Let every run lie lower than the one before by more than n and room can be. Then n
never rises over all options, and one search finds for each run the first option that
has room, which is its quickest one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll_planner.memory.bounds import Flags, Floats, Ints
from plimsoll_planner.memory.pareto import beaten_by_least, in_order
from plimsoll_planner.records.bounds import LARGEST_DEVICE_BYTES

MOST_NEEDED = LARGEST_DEVICE_BYTES + 1
"""Above every room."""
HEIGHT = MOST_NEEDED + 2
"""Of a run, above all from -1 to the most needed."""

MOST_KEPT = 6
"""Ladders of the options of a chain; with 16 a search is 5 % quicker, and takes a fifth
more memory."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Quickest:
    """Options of all runs that may be the quickest one; those in the order of T."""

    run: Ints
    """[option]: its run."""
    saved: Ints
    """[option]: S."""
    peak: Ints
    """[option]: Q."""
    seconds: Floats
    """[option]: T."""

    def at(self, places: Ints | Flags) -> Quickest:
        """Some of the options."""
        return Quickest(
            run=self.run[places],
            saved=self.saved[places],
            peak=self.peak[places],
            seconds=self.seconds[places],
        )

    def ladder(self, in_flight: int) -> Ladder:
        """Ladder with so many in flight."""
        needed = self.peak + (in_flight - 1) * self.saved
        return Ladder(seconds=self.seconds, depths=depths(self.run, needed))

    @property
    def num_bytes(self) -> int:
        """Room that all of it takes."""
        arrays = self.run, self.saved, self.peak, self.seconds
        return sum(each.nbytes for each in arrays)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ladder:
    """Options of all runs with some micro-batches in flight."""

    seconds: Floats
    """[option]: T."""
    depths: Ints
    """[option]: how far n lies below the top; never falls."""

    def seconds_within(self, runs: Ints, room: Ints) -> Floats:
        """Of some runs, the least seconds of the options that have room, or infinity.

        There is one room for each of these runs.
        """
        tops = HEIGHT * runs
        wanted = tops - np.clip(room, -1, MOST_NEEDED - 1)
        places = np.searchsorted(self.depths, wanted)
        places = np.minimum(places, len(self.depths) - 1)
        found = self.depths[places]
        is_there = (wanted <= found) & (found <= tops)
        return np.where(is_there, self.seconds[places], np.inf)


def depths(run: Ints, values: Ints) -> Ints:
    """How far the least value so far of each run lies below the top of all runs."""
    found = HEIGHT * run
    found -= np.minimum(values, MOST_NEEDED)
    return np.maximum.accumulate(found, out=found)


def quickest_first(run: Ints, saved: Ints, peak: Ints, seconds: Floats) -> Quickest:
    """Options of runs, of which `run` is the number, without needless ones."""
    every = Quickest(run=run, saved=saved, peak=peak, seconds=seconds)
    ordered = every.at(in_order(run, seconds))
    return ordered.at(~beaten_by_least(ordered.run, (ordered.peak, ordered.saved)))


class Ladders:
    """Ladders of the options of a chain, by micro-batches in flight; a few are kept."""

    def __init__(self, options: Quickest) -> None:
        """Begin with none."""
        self._options = options
        self._kept: dict[int, Ladder] = {}

    def once(self, in_flight: int) -> Ladder:
        """Ladder with so many in flight, made unless it is kept."""
        if in_flight not in self._kept:
            if len(self._kept) == MOST_KEPT:
                self._kept.clear()
            self._kept[in_flight] = self._options.ladder(in_flight)
        return self._kept[in_flight]

    @property
    def num_bytes(self) -> int:
        """Room that they take."""
        kept = sum(each.depths.nbytes for each in self._kept.values())
        return kept + self._options.num_bytes
