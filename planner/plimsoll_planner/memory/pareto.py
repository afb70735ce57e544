"""Which labels no other label of their run beats.

In: arrays [run, n]. Out: flags of the same shape. Called by `recompute_labels` for all
runs that begin at one layer at once. A label beats another of its group when it is
nowhere larger; of equal ones the first stays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES, Flags, Ints

Floats = NDArray[np.float64]
MOST_COMPARED = 2**22
"""Pairs of labels compared at a time, so that the arrays stay in the cache's reach."""


def undominated(
    *,
    group: Ints,
    bytes_columns: tuple[Ints, Ints],
    seconds: Floats | None,
    count: Ints,
) -> Flags:
    """Return which labels stay.

    Args:
        group: only labels of one group are compared.
        bytes_columns: two quantities; a label whose second one is `LARGEST_BYTES` is
            unused and does not stay.
        seconds: a third; None where it does not count.
        count: a fourth.
    """
    saved, peak = bytes_columns
    used = peak < LARGEST_BYTES
    if seconds is None:
        order = np.lexsort((peak, saved, group, ~used), axis=1)
        stays = stays_of_two(
            np.take_along_axis(group, order, axis=1),
            np.take_along_axis(peak, order, axis=1),
            np.take_along_axis(used, order, axis=1),
        )
    else:
        order = np.lexsort((peak, saved, count, seconds, group, ~used), axis=1)
        stays = stays_of_four(
            np.take_along_axis(group, order, axis=1),
            np.take_along_axis(saved, order, axis=1),
            np.take_along_axis(peak, order, axis=1),
            np.take_along_axis(count, order, axis=1),
            np.take_along_axis(used, order, axis=1),
        )
    found = np.zeros_like(used)
    np.put_along_axis(found, order, stays, axis=1)
    return found


def stays_of_two(group: Ints, peak: Ints, used: Flags) -> Flags:
    """Judge labels in the order of the first quantity: the second one must fall."""
    stays = np.zeros_like(used)
    for member in (0, 1):
        mine = used & (group == member)
        values = np.where(mine, peak, LARGEST_BYTES)
        least = np.minimum.accumulate(values, axis=1)
        smaller = np.ones_like(used)
        smaller[:, 1:] = values[:, 1:] < least[:, :-1]
        stays |= mine & smaller
    return stays


def stays_of_four(
    group: Ints, saved: Ints, peak: Ints, count: Ints, used: Flags
) -> Flags:
    """Judge labels in the order of seconds.

    Where the saved bytes fall from label to label nothing is beaten, which is the usual
    case: one more layer recomputes, and less is saved. Only other runs are compared
    pair by pair.
    """
    stays = used.copy()
    if used.shape[1] <= 1:
        return stays
    pairs = used[:, 1:] & (group[:, 1:] == group[:, :-1])
    doubtful = np.flatnonzero((pairs & (saved[:, 1:] >= saved[:, :-1])).any(axis=1))
    width = used.shape[1]
    earlier = np.tri(width, k=-1, dtype=np.bool_)
    step = max(MOST_COMPARED // (width * width), 1)
    for start in range(0, len(doubtful), step):
        runs = doubtful[start : start + step]
        beaten = earlier & used[runs][:, None, :]
        for column in (saved, peak, count):
            values = column[runs]
            beaten &= values[:, None, :] <= values[:, :, None]
        mine = group[runs]
        beaten &= mine[:, None, :] == mine[:, :, None]
        stays[runs] &= ~beaten.any(axis=2)
    return stays
