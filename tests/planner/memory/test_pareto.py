"""Labels that no other label beats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.memory import pareto
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES

SMALL = st.integers(0, 3)
LABEL = st.tuples(st.integers(0, 1), SMALL, SMALL, SMALL, SMALL, st.booleans())
RUNS = st.integers(1, 7).flatmap(
    lambda width: st.lists(
        st.lists(LABEL, min_size=width, max_size=width), min_size=1, max_size=4
    )
)


@given(RUNS, st.booleans())
def test_what_stays_is_what_none_of_its_group_beats(
    runs: list[list[tuple[int, int, int, int, int, bool]]], timed: bool
) -> None:
    """One of each set of equals stays, everything beaten goes, in every run alone."""
    table = np.array(runs, dtype=np.int64)
    group, saved, peak, seconds, count, unused = np.moveaxis(table, 2, 0)
    peak = np.where(unused == 1, LARGEST_BYTES, peak)
    count = count if timed else np.zeros_like(count)
    stays = pareto.undominated(
        group=group,
        bytes_columns=(saved, peak),
        seconds=seconds.astype(np.float64) if timed else None,
        count=count,
    )
    for run, flags in enumerate(stays):
        labels = [
            (
                int(group[run, place]),
                (
                    int(saved[run, place]),
                    int(peak[run, place]),
                    int(seconds[run, place]) if timed else 0,
                    int(count[run, place]),
                ),
            )
            for place in range(len(flags))
            if not unused[run, place]
        ]
        best = {
            (mine, values)
            for mine, values in labels
            if not any(
                other == mine
                and rest != values
                and all(a <= b for a, b in zip(rest, values, strict=True))
                for other, rest in labels
            )
        }
        kept = [
            (
                int(group[run, place]),
                (
                    int(saved[run, place]),
                    int(peak[run, place]),
                    int(seconds[run, place]) if timed else 0,
                    int(count[run, place]),
                ),
            )
            for place in np.flatnonzero(flags)
        ]
        assert sorted(kept) == sorted(best)


def test_runs_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few runs at a time give what all runs at once give."""
    rng = np.random.default_rng(7)
    shape = (9, 12)
    columns = [rng.integers(0, 4, shape) for _ in range(3)]
    seconds = rng.integers(0, 4, shape).astype(np.float64)
    group = np.zeros(shape, dtype=np.int64)

    def judge() -> list[list[bool]]:
        found = pareto.undominated(
            group=group,
            bytes_columns=(columns[0], columns[1]),
            seconds=seconds,
            count=columns[2],
        )
        return [[bool(flag) for flag in run] for run in found]

    at_once = judge()
    monkeypatch.setattr(pareto, "MOST_COMPARED", 1)
    assert judge() == at_once
