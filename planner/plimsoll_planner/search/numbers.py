"""Which of the three numbers of every interval a bound is computed from.

In: nothing. Out: `Numbers`. Called by all that asks for bounds of a tuple.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_planner.memory.bounds import Bound


class Numbers(NamedTuple):
    """Which numbers a bound is computed from."""

    bytes: Bound
    seconds: Bound
    merge: bool
    """No plan is below the bound: pruned options are merged (see `pruning`), and where
    a chain is cut between groups of layers, only bounds that need no cuts are used."""


FITTING = Numbers(Bound.UPPER, Bound.EXPECTED, merge=False)
"""Plans must fit with the upper bytes, and are compared by expected seconds."""
HOPED = Numbers(Bound.UPPER, Bound.EXPECTED, merge=True)
"""No plan that fits is below these, not even one whose options were pruned."""
FAILING = Numbers(Bound.LOWER, Bound.LOWER, merge=True)
"""A count that fails even with these fails."""
