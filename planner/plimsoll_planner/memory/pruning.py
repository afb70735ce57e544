"""Prunes the options of a run that has too many, for example of different layers.

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

from typing import Any

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.bounds import Flags, Ints


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
