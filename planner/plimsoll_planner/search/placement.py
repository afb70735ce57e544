"""Which runs of layers may stand on the ranks of a pipeline, and the best of them.

In: matrices over (A, B), the first layer of a stage and the layer behind its last one.
Out: least values, cuts. Called by the search for every tuple. A schedule that puts
several runs on a rank has another placement; everything else asks these questions.

    Placement   one run on each stage, in order, cut anywhere (`partition`)
    FixedCuts   one run on each stage, cut as an override, an engine or a rule says
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from plimsoll_planner.memory.bounds import Flags, Floats, Ints
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
from plimsoll_planner.search.partition import (
    Partition,
    first_cuts,
    least_largest,
    least_suffix_peaks,
)
from plimsoll_planner.search.walked_cuts import Walk, WalkedCuts, shortest_walk


class Placement:
    """One run on each of P stages, in order, cut anywhere: programmes over suffixes."""

    is_free: ClassVar[bool] = True
    """Whether all cuts are possible."""

    def runs(self, possible: Flags, stage: int) -> Flags:
        """[A, B]: those possible runs that may stand on a stage."""
        del stage
        return possible

    def least_peaks(self, peaks: Callable[[int], Ints], num_stages: int) -> list[int]:
        """Least peak of 0 to `num_stages` stages; `LARGEST_BYTES` if none is possible.

        `peaks` are the matrices [A, B] of least peaks with e stages left.
        """
        return [int(found[0]) for found in least_suffix_peaks(peaks, num_stages)]

    def least_largest(self, values: Sequence[Floats]) -> Partition | None:
        """Cuts whose largest value is least; None if all are impossible.

        The values are [A, B] of each stage, infinite where it is not possible.
        """
        return least_largest(values)

    def first_cuts(self, values: Sequence[Floats], limit: float) -> tuple[int, ...]:
        """First ones of the cuts with every value at most `limit`, which exist."""
        return first_cuts(values, limit)

    def shortest_walk(self, values: Sequence[Floats], walk: Walk) -> WalkedCuts | None:
        """Cuts of the shortest walked step; None if all are impossible.

        The values are step bounds [A, B] of each stage, infinite where not possible.
        """
        return shortest_walk(values, walk)


@dataclass(frozen=True, slots=True)
class FixedCuts(Placement):
    """The only cuts that there are; a stage that they leave empty is not possible."""

    is_free: ClassVar[bool] = False
    cuts: tuple[int, ...]

    def runs(self, possible: Flags, stage: int) -> Flags:
        """The only run."""
        found = np.zeros_like(possible)
        if self.cuts[-1] < len(possible):
            run = self.cuts[stage], (*self.cuts, len(possible))[stage + 1]
            found[run] = possible[run]
        return found

    def _values(self, values: Sequence[Floats | Ints]) -> list[float]:
        """Value of each stage."""
        size = values[0].shape[0]
        ends = (*self.cuts[1:], size)
        if self.cuts[-1] >= size:
            return [np.inf]
        runs = zip(values, self.cuts, ends, strict=True)
        return [float(matrix[first, end]) for matrix, first, end in runs]

    def least_peaks(self, peaks: Callable[[int], Ints], num_stages: int) -> list[int]:
        """See the base; of their own number of stages alone."""
        found = [LARGEST_BYTES] * (num_stages + 1)
        stages = len(self.cuts)
        largest = max(self._values([peaks(left) for left in range(stages, 0, -1)]))
        found[stages] = int(min(largest, LARGEST_BYTES))
        return found

    def least_largest(self, values: Sequence[Floats]) -> Partition | None:
        """See the base."""
        value = max(self._values(values))
        return None if value == np.inf else Partition(value=value, cuts=self.cuts)

    def first_cuts(self, values: Sequence[Floats], limit: float) -> tuple[int, ...]:
        """The cuts."""
        del values, limit
        return self.cuts

    def shortest_walk(self, values: Sequence[Floats], walk: Walk) -> WalkedCuts | None:
        """Walk them."""
        bound = self.least_largest(values)
        return None if bound is None else walk.only(self.cuts, bound.value)
