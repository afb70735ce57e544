"""Step bounds of a stage over the numbers of micro-batches that it may hold in flight.

In: seconds around a stage with one choice, the numbers in flight that it may have. Out:
least steps, fewest in flight, over all runs of layers [A, B]. Called by `tuple_bounds`
and `stage_options`.

Fewer in flight hold less, so a stage recomputes less within the same capacity, but it
waits longer for the stages behind. Numbers are tried from the most on. What a run with
fewer in flight can reach at best is known from `StageBound.with_fewer`, which never
falls on the way; where that is no better than what was found, the run is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from plimsoll_planner.memory.bounds import Flags, Floats, Ints
from plimsoll_planner.timing.stage_runs import StageBound, StageRuns

AddedSeconds = Callable[[int], Floats]
"""Least seconds [A, B] that recomputing adds within a capacity, by number in flight."""


@dataclass(frozen=True, kw_only=True)
class ChoiceBounds:
    """Step bounds of one stage with one choice."""

    runs: StageRuns
    caps: range
    """Numbers in flight, rising."""
    bound: Callable[[StageRuns, int | Ints], StageBound]
    """Of some runs with so many in flight."""
    of_runs: dict[tuple[int, int], StageBound] = field(
        default_factory=dict[tuple[int, int], StageBound]
    )
    """Of a run that was asked for, with each number in flight."""

    @cached_property
    def of_most(self) -> StageBound:
        """Bounds [A, B] with the most in flight."""
        return self.bound(self.runs, self.caps[-1])

    def of_run(self, run: tuple[int, int], in_flight: int) -> StageBound:
        """Bounds of one run, arrays of one entry."""
        if run not in self.of_runs:
            numbers = np.array(self.caps)
            places = np.full_like(numbers, run[0]), np.full_like(numbers, run[1])
            self.of_runs[run] = self.bound(self.runs.of(places), numbers)
        place = in_flight - self.caps[0]
        return self.of_runs[run].of((slice(place, place + 1),))

    def steps(
        self,
        num_micro_batches: int,
        added_s: AddedSeconds,
        part: float = 1.0,
    ) -> Floats:
        """[A, B]: step bound with a part of the most in flight.

        `added_s` are the least seconds [A, B] that recomputing adds with so many.
        """
        wanted = math.ceil(part * self.caps[-1])
        k = max(wanted, self.caps[0])
        bound = self.of_most if k == self.caps[-1] else self.bound(self.runs, k)
        return bound.step_s(num_micro_batches, added_s(k))

    def least_steps(
        self, num_micro_batches: int, added_s: AddedSeconds, below_s: float | Floats
    ) -> Floats:
        """[A, B]: least step bound over all numbers in flight.

        Of runs whose step is not below `below_s` with any, a bound that is not either;
        one limit for all runs, or [A, B].
        """
        found = self.steps(num_micro_batches, added_s)
        if len(self.caps) == 1:
            return found
        can_fit = added_s(self.caps[0]) < np.inf
        least = np.where(can_fit, self.of_most.with_fewer, np.inf)
        for k in reversed(self.caps[:-1]):
            left = first, end = np.nonzero(least < np.minimum(found, below_s))
            if first.size == 0:
                break
            bound = self.bound(self.runs.of((first, end)), k)
            least[left] = np.maximum(least[left], bound.with_fewer)
            steps = bound.step_s(num_micro_batches, added_s(k)[left])
            found[left] = np.minimum(found[left], np.maximum(steps, least[left]))
        return np.where(least < below_s, found, np.minimum(found, least))

    def fewest_in_flight(self, possible: Flags, limit_s: float) -> Ints:
        """[A, B]: fewest in flight of which the step bound is within a limit.

        0 where there is none, and where a run is not possible.
        """
        if len(self.caps) == 1:
            at_once = np.zeros_like(self.of_most.passes)
            is_fast = self.of_most.step_s(1, at_once) <= limit_s
            return np.where(possible & is_fast, self.caps[0], 0)
        least = self.of_most.with_fewer.copy()
        fewest = np.where(possible & (least <= limit_s), self.caps[-1], 0)
        for k in reversed(self.caps[:-1]):
            left = first, end = np.nonzero(fewest == k + 1)
            if first.size == 0:
                break
            bound = self.bound(self.runs.of((first, end)), k)
            least[left] = np.maximum(least[left], bound.with_fewer)
            fewest[left] = np.where(least[left] <= limit_s, k, k + 1)
        return fewest
