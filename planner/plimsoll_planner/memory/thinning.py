"""Keeps the number of labels of a run bounded where every layer is of its own kind.

In: the labels of all runs that begin at one layer. Out: at most `most` for each run and
first choice. Called by `recompute_labels`. Chains of repeated blocks never come here;
a chain of forty different layers would have millions of labels.

Two ways, each on the safe side of its use:

    drop    keeps some of the labels: each of them can be run, so what fits, fits
    merge   replaces neighbours by the least of each of their numbers: no real label is
            below its own, so what fails, fails

An answer from thinned labels is still proven where it says so, but more may be left
undecided, and the plan may not be the slimmest; `Labels.is_exact` says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES, Ints

Floats = NDArray[np.float64]


def chunks_of(first: Ints, peak: Ints, seconds: Floats, most: int) -> list[Ints]:
    """Return the places of one run's labels, in at most `most` chunks a first choice.

    Within a chunk the seconds are neighbours; the quickest label is one of its own.
    """
    chunks: list[Ints] = []
    for choice in (0, 1):
        mine = np.flatnonzero((first == choice) & (peak < LARGEST_BYTES))
        ordered = mine[np.lexsort((peak[mine], seconds[mine]))]
        if len(ordered):
            chunks.append(ordered[:1])
        if len(ordered) > 1:
            rest = ordered[1:]
            chunks.extend(np.array_split(rest, max(min(most - 1, len(rest)), 1)))
    return chunks


def thinned(arrays: dict[str, NDArray[Any]], most: int, *, merge: bool) -> bool:
    """Thin the runs that have more labels than allowed, in place.

    Args:
        arrays: the fields of labels, [run, n], by name.
        most: labels for each run and first choice.
        merge: take the least of each number, else keep the slimmest of each chunk.

    Returns:
        Whether anything was thinned.
    """
    first, peak = arrays["first"], arrays["peak"]
    seconds = arrays["seconds"]
    crowded = np.flatnonzero((peak < LARGEST_BYTES).sum(axis=1) > 2 * most)
    for run in crowded:
        chunks = chunks_of(first[run], peak[run], seconds[run], most)
        size = arrays["saved"][run] + peak[run]
        slimmest = [chunk[size[chunk].argmin()] for chunk in chunks]
        for name, array in arrays.items():
            values = array[run].copy()
            array[run] = {"peak": LARGEST_BYTES, "seconds": np.inf}.get(name, 0)
            for place, chunk in enumerate(chunks):
                least = merge and name in {"saved", "peak", "num_recomputed"}
                kept = chunk[0] if merge else slimmest[place]
                array[run, place] = values[chunk].min() if least else values[kept]
    return len(crowded) > 0
