"""Starts of stages in a very long chain: the borders of groups of layers.

In: what each layer weighs. Out: the first layer of each group. Called by `cost_tables`.
Arrays over all runs of layers grow with the square of the number of borders, so a chain
of a thousand layers is cut between groups alone. Bytes and seconds stay those of single
layers, and so do the choices to recompute: a plan that fits, fits. That none exists is
proven by bounds that hold for cuts anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.bounds import Ints, Values


def group_starts(
    weights: Sequence[Values], most: int, needed: Iterable[int] = ()
) -> Ints:
    """First layer of each of at most `most` groups, and of those that are needed.

    Args:
        weights: several quantities of each layer; groups weigh about the same in their
            sum, where each counts the same.
        most: groups.
        needed: layers that must begin a group.
    """
    size = len(weights[0])
    if size <= most:
        return np.arange(size)
    total: NDArray[np.float64] = np.full(size, 1 / size)
    for weight in weights:
        total = total + weight / max(float(weight.sum()), 1e-300)
    sums = np.cumsum(total)
    aims = np.arange(most) * (float(sums[-1]) / most)
    starts: Ints = np.searchsorted(np.append(0.0, sums[:-1]), aims)
    starts = np.minimum(starts, size - 1)
    return np.unique([0, *starts, *needed])
