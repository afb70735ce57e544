"""OptionArrays that no other option of their group beats.

In: arrays over the options of many groups, which are ascending integers. Out: flags.
Called by `option_arrays` for all runs that begin at one layer at once. An option beats
another of its group when it is nowhere larger; of equal ones the first stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plimsoll_planner.memory.bounds import Flags, Ints, Values
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES

MOST_COMPARED = 2**20
"""Pairs of options compared at a time, so that the arrays stay in the cache's reach."""


def groups_of(group: Ints) -> tuple[Ints, Ints]:
    """Place at which each group begins, and its number of options."""
    begins = np.ones(len(group), dtype=np.bool_)
    begins[1:] = group[1:] != group[:-1]
    starts = np.flatnonzero(begins)
    return starts, np.diff(np.append(starts, len(group)))


def in_order(group: Ints, values: Values, *others: Ints) -> Ints:
    """Places of options by group, by a first quantity, then by others.

    Options come as a few lists that are in order. A stable sort merges those, if both
    are one key; `lexsort` sorts from scratch, and is for equal keys alone.
    """
    key = np.empty(len(group), dtype=np.complex128)
    key.real, key.imag = group, values
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    if others and (ordered[1:] == ordered[:-1]).any():
        return np.lexsort((*reversed(others), values, group))
    return order


def stays_of_two(group: Ints, second: Ints) -> Flags:
    """Whether options stay, in the order of a first quantity: the second must fall."""
    starts, lengths = groups_of(group)
    if not len(starts):
        return np.zeros(0, dtype=np.bool_)
    row = np.repeat(np.arange(len(starts)), lengths)
    place = np.arange(len(group)) - np.repeat(starts, lengths)
    wide = np.full((len(starts), int(lengths.max()) + 1), LARGEST_BYTES)
    wide[row, place + 1] = second
    least = np.minimum.accumulate(wide, axis=1)
    return np.asarray(second < least[row, place])


def stays_of_four(group: Ints, saved: Ints, others: tuple[Ints, Ints]) -> Flags:
    """Judge options in the order of seconds.

    If the saved bytes fall from option to option nothing is beaten, which is the usual
    case: one more layer recomputes, and less is saved. In other groups those go that
    the least one so far beats, by each quantity; the rest is compared pair by pair.

    Args:
        group: of each option, ascending.
        saved: one quantity beside the seconds.
        others: two more.
    """
    starts, lengths = groups_of(group)
    if not len(starts):
        return np.zeros(0, dtype=np.bool_)
    rises = np.zeros(len(group), dtype=np.bool_)
    rises[1:] = (saved[1:] >= saved[:-1]) & (group[1:] == group[:-1])
    judged = np.repeat(np.logical_or.reduceat(rises, starts), lengths)
    places = np.flatnonzero(judged)
    columns = [column[places] for column in (saved, *others)]
    left = ~beaten_by_least(group[places], columns)
    stays = ~judged
    places = places[left]
    stays[places] = stays_of_pairs(group[places], [one[left] for one in columns])
    return stays


def beaten_by_least(group: Ints, columns: Sequence[Ints]) -> Flags:
    """Whether options are beaten by the first before them with the least of a column.

    Args:
        group: of each option, ascending; in the order of seconds.
        columns: the other quantities.
    """
    own, found = np.arange(len(group)), np.zeros(len(group), dtype=np.bool_)
    for column in columns:
        if not len(group):
            break
        # Each group lies above the one before it by more than values differ.
        height = int(column.max()) + 1
        if height * (int(group[-1]) + 1) > LARGEST_BYTES:
            continue  # as no bytes of devices are
        depth = np.maximum.accumulate(group * height - column)
        is_less = np.append(True, depth[1:] > depth[:-1])
        least = np.maximum.accumulate(np.where(is_less, own, 0))
        beats = [one[least] <= one for one in columns]
        found |= (least != own) & np.all(beats, axis=0)
    return found


def stays_of_pairs(group: Ints, columns: Sequence[Ints]) -> Flags:
    """Whether options stay, each compared with all before it in its group."""
    stays = np.ones(len(group), dtype=np.bool_)
    if not len(group):
        return stays
    starts, lengths = groups_of(group)
    judged = np.argsort(lengths, kind="stable")
    judged = judged[lengths[judged] > 1]
    while len(judged):
        most = max(MOST_COMPARED // int(lengths[judged[0]]) ** 2, 1)
        piece, judged = judged[:most], judged[most:]
        width = int(lengths[piece].max())
        places = starts[piece][:, None] + np.arange(width)
        used = np.arange(width) < lengths[piece][:, None]
        places = np.where(used, places, starts[piece][:, None])
        beaten = np.tri(width, k=-1, dtype=np.bool_) & used[:, None, :]
        for column in columns:
            values = column[places]
            beaten &= values[:, None, :] <= values[:, :, None]
        stays[places[used]] = ~np.any(beaten, axis=2)[used]
    return stays
