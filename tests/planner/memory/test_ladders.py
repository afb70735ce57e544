"""Ladders against a search of every option of every run."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.memory.ladders import MOST_NEEDED, ladder, steps_of
from tests.support.drawing import draws

NEEDED = st.one_of(
    st.integers(0, 9), st.sampled_from([MOST_NEEDED - 1, MOST_NEEDED, 2**60])
)
RUNS = st.lists(
    st.lists(st.tuples(NEEDED, st.integers(0, 5)), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)
ROOM = st.one_of(st.integers(-9, 9), st.sampled_from([-(2**60), MOST_NEEDED - 1]))


@settings(max_examples=draws(300))
@given(RUNS, st.data())
def test_a_ladder_finds_the_quickest_option_that_has_room(
    runs: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    """In any order of the options, with too little room and with room for all."""
    room = data.draw(st.lists(ROOM, min_size=len(runs), max_size=len(runs)))
    run = np.repeat(np.arange(len(runs)), [len(options) for options in runs])
    needed, seconds = (
        np.array([option[place] for options in runs for option in options])
        for place in (0, 1)
    )
    steps = steps_of(run, seconds.astype(np.float64))
    found = ladder(steps, needed).seconds_within(np.array(room))
    assert found.tolist() == [
        min((s for n, s in options if n <= most), default=np.inf)
        for options, most in zip(runs, room, strict=True)
    ]
