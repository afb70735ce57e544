"""Branch and bound over cuts against all cuts."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.search.walked_cuts import Walk, WalkedCuts, shortest_walk
from tests.planner.search.test_partition import all_cuts, matrices, values_of

IMPOSSIBLE = 9


def search(
    tables: list[list[list[int]]],
    excess: list[int],
    most_walks: int,
    enough_s: float,
    below_s: float = np.inf,
) -> tuple[WalkedCuts | None, dict[tuple[int, ...], float]]:
    """Search, with a walk somewhat above the largest value; and all walks."""
    size = len(tables[0])
    values = []
    for table in tables:
        array = np.array(table, dtype=np.float64)
        array[array == IMPOSSIBLE] = np.inf
        array[np.tri(size, size + 1, dtype=np.bool_)] = np.inf
        values.append(array)
    walks = {
        cuts: float(max(values_of(tables, cuts)) + more)
        for cuts, more in zip(
            all_cuts(size, len(tables)), itertools.cycle(excess), strict=False
        )
        if max(values_of(tables, cuts)) < IMPOSSIBLE
    }
    walk = Walk(
        step_s=lambda cuts: walks[cuts] if walks[cuts] < below_s else np.inf,
        least_s=walks.__getitem__,
        enough_s=enough_s,
        below_s=below_s,
        most_walks=most_walks,
    )
    return shortest_walk(values, walk), walks


EXCESS = st.lists(st.integers(0, 3), min_size=1, max_size=5)


@given(matrices(), EXCESS)
def test_the_shortest_walk_is_found_and_known_to_be_it(
    tables: list[list[list[int]]], excess: list[int]
) -> None:
    """With walks enough nothing is left open, whatever a walk is above its bound."""
    found, walks = search(tables, excess, most_walks=10_000, enough_s=-1.0)
    if found is None:
        assert not walks
        return
    assert found.step_s == found.least_s == walks[found.cuts] == min(walks.values())


@given(matrices(), EXCESS, st.integers(1, 3), st.integers(0, 9))
def test_what_is_left_open_is_said(
    tables: list[list[list[int]]], excess: list[int], most_walks: int, enough_s: int
) -> None:
    """No walk is below the bound that is returned, and short enough ends the search."""
    found, walks = search(tables, excess, most_walks, float(enough_s))
    if found is None:
        assert not walks
        return
    assert found.least_s <= min(walks.values()) <= found.step_s == walks[found.cuts]


@given(matrices(), EXCESS, st.floats(0, 9))
def test_nothing_is_found_that_is_not_below_a_limit(
    tables: list[list[list[int]]], excess: list[int], below_s: float
) -> None:
    """It is known then that no step is."""
    found, walks = search(tables, excess, 10_000, -1.0, below_s)
    if found is None:
        assert not walks
        return
    shortest_s = min(walks.values())
    if shortest_s < below_s:
        assert found.step_s == walks[found.cuts] == shortest_s
    else:
        assert found.cuts == ()
        assert below_s <= found.least_s <= shortest_s
