"""Exact cuts of a chain into the stages of a pipeline, by programmes over suffixes.

In: matrices over (A, B), the first layer of a stage and the layer behind its last one.
Out: least values, cuts. Called by `placement`.

    f[e][A] = min over B > A of max(value_e[A, B], f[e-1][B]),   f[0][L] = least of all

is the least largest value of any e stages that hold the layers from A on. e is the
number of stages left, stage s of P has e = P - s, so a programme whose values depend on
e alone (peaks: k = min(M, e)) answers for every P at once; one whose values depend on s
as well (step bounds) is run for each P.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.bounds import Floats, Ints
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """A least largest value, and the first layers of the stages that reach it."""

    value: float
    cuts: tuple[int, ...]
    """First layer of each stage; the first one is 0."""


def least_largest(values: Sequence[Floats]) -> Partition | None:
    """Cut into len(values) stages so that the largest value is least.

    Args:
        values: for each stage s, first to last, the matrix [A, B]; infinite where a
            stage is not possible.

    Returns:
        The lexicographically first of the best cuts; None where every cut is
        impossible.
    """
    value = float(suffix_values(values)[0][0])
    if value == np.inf:
        return None
    return Partition(value=value, cuts=first_cuts(values, value))


def windows(num_stages: int, size: int) -> list[tuple[slice, slice]]:
    """A and B that each stage may have, as every other one has at least one layer."""
    last = [max(size - behind, 0) for behind in reversed(range(num_stages))]
    return [
        (slice(stage, end), slice(stage + 1, end + 1)) for stage, end in enumerate(last)
    ]


def suffix_values(values: Sequence[Floats]) -> list[Floats]:
    """For each stage s the array over A: least largest value of s and those behind.

    It is infinite where too few layers are before A or behind it. One more array
    follows, for no stage at all: minus infinity at L, else infinite.
    """
    size = values[0].shape[0]
    found = [np.full(size + 1, np.inf)]
    found[0][size] = -np.inf
    pairs = zip(values, windows(len(values), size), strict=True)
    for matrix, (first, end) in reversed(list(pairs)):
        worst = np.maximum(matrix[first, end], found[0][end])
        found.insert(0, np.full(size + 1, np.inf))
        found[0][first] = worst.min(axis=1, initial=np.inf)
    return found


def first_cuts(values: Sequence[Floats], limit: float) -> tuple[int, ...]:
    """Lexicographically first cuts with every value at most `limit`, which exist."""
    size = values[0].shape[0]
    reached = np.zeros(size + 1, dtype=np.bool_)
    reached[size] = True
    allowed: list[NDArray[np.bool_]] = []
    pairs = zip(values, windows(len(values), size), strict=True)
    for matrix, (first, end) in reversed(list(pairs)):
        possible = (matrix[first, end] <= limit) & reached[end]
        allowed.append(possible)
        reached = np.zeros_like(reached)
        reached[first] = possible.any(axis=1)
    cuts: list[int] = []
    layer = 0
    for stage, possible in enumerate(reversed(allowed)):
        cuts.append(layer)
        layer = stage + 1 + int(possible[layer - stage].argmax())
    return tuple(cuts)


def least_suffix_peaks(peaks: Callable[[int], Ints], num_stages: int) -> list[Ints]:
    """F for 0 to `num_stages` stages, each an array over A of 0 to L.

    `peaks` are the matrices [A, B] of least peaks with e stages left.
    """
    size = peaks(1).shape[0]
    suffix = np.full(size + 1, LARGEST_BYTES, dtype=np.int64)
    suffix[size] = 0
    found = [suffix]
    for left in range(1, num_stages + 1):
        worst = np.maximum(peaks(left), found[-1][None, :]).min(axis=1)
        found.append(np.append(worst, LARGEST_BYTES))
    return found
