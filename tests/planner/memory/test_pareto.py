"""Options that no other one of their group beats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.memory import pareto

SMALL = st.integers(0, 3)
OPTIONS = st.lists(st.tuples(SMALL, SMALL, SMALL, SMALL, SMALL), min_size=1)
"""Group, seconds, count, saved, peak: sorted, so are they in the order of judgement."""


def undominated(options: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """One of each set of equal options that no other one of its group beats."""
    return [
        one
        for one in sorted(set(options))
        if not any(
            other != one
            and other[0] == one[0]
            and all(a <= b for a, b in zip(other, one, strict=True))
            for other in options
        )
    ]


@given(OPTIONS)
def test_what_stays_is_what_none_of_its_group_beats(
    drawn: list[tuple[int, ...]],
) -> None:
    """One of each set of equals stays, everything beaten goes."""
    options = sorted(drawn)
    group, _, count, saved, peak = np.array(options, dtype=np.int64).T
    stays = pareto.stays_of_four(group, saved, (peak, count))
    found = [option for option, stay in zip(options, stays, strict=True) if stay]
    assert found == undominated(options)


@given(OPTIONS)
def test_options_are_put_in_the_order_of_all_keys(
    drawn: list[tuple[int, ...]],
) -> None:
    """By group, then seconds, then others; of equal ones the first comes first."""
    columns = np.array(drawn, dtype=np.int64).T
    order = pareto.in_order(*columns[:3])
    by_hand = sorted(range(len(drawn)), key=lambda place: (drawn[place][:3], place))
    assert order.tolist() == by_hand


@given(OPTIONS)
def test_two_quantities_need_no_pairs(drawn: list[tuple[int, ...]]) -> None:
    """In the order of the first quantity, the second one falls."""
    options = sorted((group, saved, peak) for group, _, _, saved, peak in drawn)
    group, _, peak = np.array(options, dtype=np.int64).T
    stays = pareto.stays_of_two(group, peak)
    found = [option for option, stay in zip(options, stays, strict=True) if stay]
    assert found == undominated(list(options))


def test_groups_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few groups at a time give what all groups at once give."""
    rng = np.random.default_rng(7)
    group = np.repeat(np.arange(9), rng.integers(1, 12, 9))
    saved, peak, count = rng.integers(0, 4, (3, len(group)))

    def judge() -> list[bool]:
        return list(pareto.stays_of_four(group, saved, (peak, count)))

    at_once = judge()
    monkeypatch.setattr(pareto, "MOST_COMPARED", 1)
    assert judge() == at_once
