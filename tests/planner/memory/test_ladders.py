"""Ladders against a search of every option of every run."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.memory.ladders import MOST_NEEDED, quickest_first
from tests.support.drawing import draws

NEEDED = st.one_of(
    st.integers(0, 9), st.sampled_from([MOST_NEEDED - 1, MOST_NEEDED, 2**60])
)
SAVED = st.one_of(st.integers(0, 4), st.just(2**59))
RUNS = st.lists(
    st.lists(st.tuples(SAVED, NEEDED, st.integers(0, 5)), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)
ROOM = st.one_of(st.integers(-9, 9), st.sampled_from([-(2**60), MOST_NEEDED - 1]))


@settings(max_examples=draws(300))
@given(RUNS, st.data())
def test_a_ladder_finds_the_quickest_option_that_has_room(
    runs: list[list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    """In any order of the options, with too little room and with room for all."""
    rooms = data.draw(st.lists(ROOM, min_size=len(runs), max_size=len(runs)))
    asked = sorted(data.draw(st.sets(st.sampled_from(range(len(runs))))))
    in_flight = data.draw(st.integers(1, 3))
    run = np.repeat(np.arange(len(runs)), [len(options) for options in runs])
    saved, peak, seconds = np.array([one for options in runs for one in options]).T
    options = quickest_first(run, saved, peak, seconds.astype(np.float64))
    places = np.array(asked, dtype=np.int64)
    found = options.ladder(in_flight).seconds_within(places, np.array(rooms)[places])
    assert found.tolist() == [
        min(
            (t for s, q, t in runs[place] if q + (in_flight - 1) * s <= rooms[place]),
            default=np.inf,
        )
        for place in asked
    ]
