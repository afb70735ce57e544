"""Options of two sets together, of the same runs of layers.

In: options with few of each run, and others. Out: both. Called by `variant_tables`, to
have the least memory beside what pruning left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from plimsoll_planner.memory.bounds import Ints
from plimsoll_planner.memory.option_arrays import OptionArrays
from plimsoll_planner.memory.run_options import NO_NODE


def with_others(one: OptionArrays, other: OptionArrays) -> OptionArrays:
    """Options of both, of the same runs; what was pruned of `one` stays so."""
    key = np.concatenate([run_of_each(one), run_of_each(other)])
    order = np.argsort(key, kind="stable")
    first_node = len(one.way)
    behind = np.where(other.behind == NO_NODE, NO_NODE, other.behind + first_node)
    joint = replace(other, node=other.node + first_node)

    def both(name: str) -> Any:
        return np.concatenate([getattr(one, name), getattr(joint, name)])[order]

    return replace(
        one,
        saved=both("saved"),
        peak=both("peak"),
        seconds=both("seconds"),
        num_recomputed=both("num_recomputed"),
        node=both("node"),
        way=np.concatenate([one.way, other.way]),
        behind=np.concatenate([one.behind, behind.astype(np.int32)]),
        begin=one.begin + other.begin,
        count=one.count + other.count,
    )


def run_of_each(options: OptionArrays) -> Ints:
    """Number of the run of each option."""
    return np.repeat(np.arange(options.count.size), options.count.ravel())
