"""The largest value that fits, and the least that fails."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.search.largest import largest


@given(st.integers(0, 300), st.integers(0, 40), st.integers(1, 8), st.integers(1, 2000))
def test_both_edges_are_found(fits: int, open_: int, grain: int, limit: int) -> None:
    """Wherever they are, in few questions, and never beyond the limit."""
    asked: list[int] = []

    def judge(value: int) -> Verdict:
        assert value % grain == 0
        assert value <= max(limit, grain)
        asked.append(value)
        if value <= fits:
            return Verdict.FITS
        return Verdict.UNDECIDED if value <= fits + open_ else Verdict.FAILS

    found = largest(judge, grain, limit)
    values = range(grain, max(limit // grain, 1) * grain + 1, grain)
    assert found.fits == max((v for v in values if v <= fits), default=None)
    assert found.fails == min((v for v in values if v > fits + open_), default=None)
    assert len(asked) == len(set(asked)) == found.num_asked
    assert found.num_asked <= 4 * len(values).bit_length() + 2
