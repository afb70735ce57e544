"""Ladders against a search of every option of every run."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.memory.ladders import MOST_NEEDED, ladder
from tests.support.drawing import draws

NEEDED = st.one_of(
    st.integers(0, 9), st.sampled_from([MOST_NEEDED - 1, MOST_NEEDED, 2**60])
)
RUNS = st.lists(
    st.lists(st.tuples(st.integers(0, 5), NEEDED), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)
ROOM = st.one_of(st.integers(-9, 9), st.sampled_from([-(2**60), MOST_NEEDED - 1]))


def by_seconds(option: tuple[int, int]) -> int:
    """Seconds of an option."""
    return option[0]


@settings(max_examples=draws(300))
@given(RUNS, st.data())
def test_a_ladder_finds_the_quickest_option_that_has_room(
    runs: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    """With equal seconds, with too little room and with room for all."""
    rooms = data.draw(st.lists(ROOM, min_size=len(runs), max_size=len(runs)))
    asked = sorted(data.draw(st.sets(st.sampled_from(range(len(runs))))))
    run = np.repeat(np.arange(len(runs)), [len(options) for options in runs])
    seconds, needed = np.array(
        [option for options in runs for option in sorted(options, key=by_seconds)]
    ).T
    places = np.array(asked, dtype=np.int64)
    found = ladder(run, needed, seconds.astype(np.float64)).seconds_within(
        places, np.array(rooms)[places]
    )
    assert found.tolist() == [
        min((s for s, n in runs[place] if n <= rooms[place]), default=np.inf)
        for place in asked
    ]
