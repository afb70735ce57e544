"""The largest value that fits, and the least that fails."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.search.largest import largest, largest_of


@given(
    st.integers(0, 300),
    st.integers(0, 40),
    st.integers(1, 8),
    st.integers(1, 2000),
    st.integers(8, 400),
)
def test_both_edges_are_found(
    fits: int, open_: int, grain: int, limit: int, end: int
) -> None:
    """Wherever they are, in few questions, and never beyond the limit.

    There are no values beyond the end.
    """
    asked: list[int] = []

    def judge(value: int) -> Verdict | None:
        assert value % grain == 0
        assert value <= max(limit, grain)
        asked.append(value)
        if value > end:
            return None
        if value <= fits:
            return Verdict.FITS
        return Verdict.UNDECIDED if value <= fits + open_ else Verdict.FAILS

    found = largest(judge, grain, limit)
    tried = range(grain, max(limit // grain, 1) * grain + 1, grain)
    values = [value for value in tried if value <= end]
    assert found.fits == max((v for v in values if v <= fits), default=None)
    assert found.fails == min((v for v in values if v > fits + open_), default=None)
    assert found.limit == (tried[-1] if found.fails else values[-1])
    assert len(asked) == len(set(asked)) == found.num_asked
    assert found.num_asked <= 4 * len(tried).bit_length() + 2


@given(st.integers(1, 8), st.integers(1, 60), st.sets(st.integers(1, 60)))
def test_the_largest_with_which_more_is_met(
    grain: int, count: int, met: set[int]
) -> None:
    """What is met anywhere is looked for from above; what falls, by halves."""
    below = set(range(1, max(met, default=0) + 1))
    for those, is_falling in ((met, False), (below, True)):
        is_met = {one * grain for one in those}.__contains__
        found = largest_of(is_met, grain, grain * count, is_falling=is_falling)
        expected = max((one for one in those if one <= count), default=0) * grain
        assert found == (expected or None)
