"""Keeps the options that count, and few of a run that has too many.

What another option beats goes first (`pareto`). A run of different layers may still
have too many.

In: options in groups (one run, one choice of its first layer), sorted by seconds, or by
saved bytes where seconds do not count. Out: where each part of a group begins, of which
one option is left. Called by `option_arrays`. Repeated blocks never come here; a run
of forty different layers would have millions of options.

The range of a group is cut into equal parts. What is left of a part errs on the safe
side of its use:

    drop    the least option: it can be run, so what fits, fits
    merge   the least of each number: no real option is below it, so what fails, fails

Parts of equal length keep the error of the seconds small if options are few; parts of
equally many options would be wide at both ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.bounds import Flags, Ints
from plimsoll_planner.memory.pareto import (
    groups_of,
    in_order,
    stays_of_four,
    stays_of_two,
)
from plimsoll_planner.memory.run_options import Options


def part_starts(group: Ints, values: NDArray[Any], crowded: Flags, most: int) -> Ints:
    """The place at which each part begins.

    Args:
        group: of each option, ascending.
        values: seconds or bytes of each option, ascending within a group.
        crowded: options of groups that have too many; every other option is a part of
            its own, and so is the first one of each group where `most` is above 1.
        most: parts of each crowded group.
    """
    begins = np.ones(len(group), dtype=np.bool_)
    begins[1:] = group[1:] != group[:-1]
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(group)))
    least = np.repeat(values[starts], lengths)
    largest = np.repeat(values[starts + lengths - 1], lengths)
    width = np.maximum(largest - least, np.finfo(np.float64).tiny) / max(most - 1, 1)
    part = np.minimum(np.ceil((values - least) / width), most - 1)
    begins[1:] |= ~crowded[1:] | (part[1:] != part[:-1])
    return np.flatnonzero(begins)


def least_places(values: Ints, starts: Ints) -> Ints:
    """Place of the first least value of each part."""
    lengths = np.diff(np.append(starts, len(values)))
    least = np.repeat(np.minimum.reduceat(values, starts), lengths)
    places = np.flatnonzero(values == least)
    part = np.searchsorted(starts, places, side="right")
    is_first = np.ones(len(places), dtype=np.bool_)
    is_first[1:] = part[1:] != part[:-1]
    return np.asarray(places[is_first])


def least_memory(options: Options) -> Ints:
    """Places of the options that no other one beats in S and Q, in order."""
    order = in_order(options.group, options.saved, options.peak)
    return order[stays_of_two(options.group[order], options.peak[order])]


def undominated(options: Options, pruned: Flags) -> Ints:
    """Places of the options that no other one beats, in order; of pruned runs all."""
    group = options.group
    keys = options.num_recomputed, options.saved, options.peak
    order = in_order(group, options.seconds, *keys)
    judged = np.flatnonzero(~pruned[options.end[order]])
    mine = order[judged]
    others = options.peak[mine], options.num_recomputed[mine]
    stays = np.ones(len(order), dtype=np.bool_)
    stays[judged] = stays_of_four(group[mine], options.saved[mine], others)
    return order[stays]


def crowded_options(
    group: Ints, end: Ints, pruned: Flags, most: int, length: Ints
) -> Flags:
    """Whether each option, in order, is of a group that has too many.

    Equal layers have an option for each number of them that recomputes, twice as many
    with another layer behind, so that many are allowed where nothing is pruned yet.
    """
    starts, sizes = groups_of(group)
    last = end[starts]
    allowed = np.where(pruned[last], most, np.maximum(most, 2 * length[last] + 2))
    return np.repeat(sizes > allowed, sizes)


def thinned(
    options: Options,
    places: Ints,
    by: NDArray[Any],
    crowded: Flags,
    most: int,
    *,
    merge: bool,
) -> Options:
    """Of options in order, one of each part of the crowded groups; see `pruning`."""
    starts = part_starts(options.group[places], by[places], crowded, most)
    if not merge:
        needed = (options.saved + options.peak)[places]
        return options.at(places[least_places(needed, starts)])
    return replace(
        options.at(places[starts]),
        **{
            name: np.minimum.reduceat(getattr(options, name)[places], starts)
            for name in ("saved", "peak", "num_recomputed")
        },
    )
