"""Exact cuts of a chain into the stages of a pipeline, by programmes over suffixes.

In: matrices over (A, B), the first layer of a stage and the layer behind its last one.
Out: least values, cuts. Called by the search for every tuple.

    f[e][A] = min over B > A of max(value_e[A, B], f[e-1][B]),   f[0][L] = least of all

is the least largest value of any e stages that hold the layers from A on. e is the
number of stages left, stage s of P has e = P - s, so a programme whose values depend on
e alone (peaks: k = min(M, e)) answers for every P at once; one whose values depend on s
as well (step bounds) is run for each P.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES, Ints
from plimsoll_planner.memory.recompute_labels import Floats

Numbers = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """A least largest value, and the first layers of the stages that reach it."""

    value: float
    cuts: tuple[int, ...]
    """First layer of each stage; the first one is 0."""

    def stages(self, num_layers: int) -> list[tuple[int, int]]:
        """Return (A, B) of each stage."""
        return list(zip(self.cuts, (*self.cuts[1:], num_layers), strict=True))


def least_largest(values: list[Floats]) -> Partition | None:
    """Cut into len(values) stages so that the largest value is least.

    Args:
        values: for each stage s, first to last, the matrix [A, B]; infinite where a
            stage is not possible.

    Returns:
        The lexicographically first of the best cuts; None where every cut is
        impossible.
    """
    size = values[0].shape[0]
    suffix = np.full(size + 1, np.inf)
    suffix[size] = -np.inf
    best: list[NDArray[np.int64]] = []
    for matrix in reversed(values):
        worst = np.maximum(matrix, suffix[None, :])
        ends = worst.argmin(axis=1)
        best.append(ends)
        suffix = np.append(np.take_along_axis(worst, ends[:, None], axis=1), np.inf)
    value = float(suffix[0])
    if value == np.inf:
        return None
    return Partition(value=value, cuts=first_cuts(values, value))


def first_cuts(values: list[Floats], limit: float) -> tuple[int, ...]:
    """Return the lexicographically first cuts with every value at most `limit`."""
    size = values[0].shape[0]
    reached = np.zeros(size + 1, dtype=np.bool_)
    reached[size] = True
    allowed: list[NDArray[np.bool_]] = []
    for matrix in reversed(values):
        possible = (matrix <= limit) & reached[None, :]
        allowed.append(possible)
        reached = np.append(possible.any(axis=1), False)
    cuts: list[int] = []
    layer = 0
    for possible in reversed(allowed):
        cuts.append(layer)
        layer = int(possible[layer].argmax())
    return tuple(cuts)


def least_corner(peaks: Callable[[int], Ints], num_stages: int) -> list[Ints]:
    """Return f for 0 to `num_stages` stages, each an array over A of 0 to L.

    Args:
        peaks: for e, the matrix of least peaks with e stages left.
        num_stages: the most stages.
    """
    size = peaks(1).shape[0]
    suffix = np.full(size + 1, LARGEST_BYTES, dtype=np.int64)
    suffix[size] = 0
    found = [suffix]
    for left in range(1, num_stages + 1):
        worst = np.maximum(peaks(left), found[-1][None, :]).min(axis=1)
        found.append(np.append(worst, LARGEST_BYTES))
    return found


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Order:
    """What makes one partition better than another, in this order."""

    peaks: tuple[int, ...]
    """Of all stages, largest first."""
    num_recomputed: int
    cuts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageChoice:
    """For all stages [A, B]: the least peak, and the fewest recomputed layers there."""

    peaks: Ints
    num_recomputed: Ints


def least_peak(choices: list[StageChoice]) -> Order | None:
    """Cut so that the largest peak is least, then the second largest, and so on.

    Ties go to fewer recomputed layers, then to the lexicographically first cuts. The
    order of multisets by their sorted members is kept when one member is added to both,
    and so are the two ties, so a best suffix stays best under any stage in front.

    Args:
        choices: for each stage s, first to last.

    Returns:
        None where some stage is impossible under every cut.
    """
    size = choices[0].peaks.shape[0]
    least = least_largest([c.peaks.astype(np.float64) for c in choices])
    if least is None or least.value >= LARGEST_BYTES:
        return None
    num_stages = len(choices)

    @cache
    def suffix(stage: int, first: int) -> Order | None:
        if stage == num_stages:
            return Order(peaks=(), num_recomputed=0, cuts=()) if first == size else None
        if first == size:
            return None
        peaks, counts = choices[stage].peaks[first], choices[stage].num_recomputed
        best: Order | None = None
        for end in range(first + 1, size + 1):
            own = int(peaks[end])
            if own > least.value or (best and own > best.peaks[0]):
                continue
            rest = suffix(stage + 1, end)
            if rest is None:
                continue
            order = Order(
                peaks=tuple(sorted((own, *rest.peaks), reverse=True)),
                num_recomputed=rest.num_recomputed + int(counts[first, end]),
                cuts=(first, *rest.cuts),
            )
            if best is None or order < best:
                best = order
        return best

    return suffix(0, 0)
