"""Moves from one cut of a chain to another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.records.revision import Cuts, Move, moved
from plimsoll_planner.revising.moves import Fullness, arrivals, moves_between, run_of

Pair = tuple[Cuts, Cuts, int]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Cuts before and after, and a number of layers."""
    num_layers = draw(st.integers(2, 24))
    num_stages = draw(st.integers(2, min(num_layers, 8)))
    places = st.sets(
        st.integers(1, num_layers - 1), min_size=num_stages - 1, max_size=num_stages - 1
    )
    before, after = ((0, *sorted(draw(places))) for _ in range(2))
    return before, after, num_layers


def by_length(stage: int, first: int, end: int) -> float:
    """Fullness by layers."""
    del stage
    return end - first


def fullest(
    before: Cuts, moves: tuple[Move, ...], num_layers: int, fullness: Fullness
) -> float:
    """Largest fullness of a destination after any of the moves; 0 without one."""
    runs = arrivals(before, moves, num_layers)
    filled = (fullness(move.destination, *after) for move, _, after in runs)
    return max(filled, default=0)


@given(pairs())
def test_moves_lead_from_cuts_to_others(pair: Pair) -> None:
    """In the fewest moves, with at least one layer on every stage in between."""
    before, after, num_layers = pair
    cuts: Cuts | None = before
    moves = moves_between(before, after, num_layers, by_length)
    for move in moves:
        assert cuts is not None
        cuts = moved(cuts, num_layers, move)
    assert cuts == after
    assert len(moves) == sum(abs(b - a) for b, a in zip(before, after, strict=True))


@given(pairs())
def test_no_stage_takes_much_before_it_gives(pair: Pair) -> None:
    """Of equal layers it has at most one more than before or afterwards."""
    before, after, num_layers = pair

    def above(stage: int, first: int, end: int) -> float:
        runs = (run_of(cuts, stage, num_layers) for cuts in (before, after))
        return end - first - max(last - begin for begin, last in runs)

    moves = moves_between(before, after, num_layers, above)
    assert fullest(before, moves, num_layers, above) <= 1


def test_a_full_stage_gives_first() -> None:
    """Layers of 3 bytes pass through a stage that has room for two of them."""
    moves = moves_between((0, 2, 4), (0, 3, 5), 6, by_length)
    assert moves == (
        Move(layer=2, source=1, destination=0),
        Move(layer=4, source=2, destination=1),
    )
    assert fullest((0, 2, 4), moves, 6, by_length) == 3


def test_moves_that_are_none() -> None:
    """An inner layer, the only one of a stage, and a stage that is not there."""
    cuts = (0, 2, 3)
    assert moved(cuts, 6, Move(layer=0, source=0, destination=1)) is None
    assert moved(cuts, 6, Move(layer=2, source=1, destination=2)) is None
    assert moved(cuts, 6, Move(layer=5, source=2, destination=3)) is None
    assert moved(cuts, 6, Move(layer=4, source=2, destination=1)) is None
    assert moved(cuts, 6, Move(layer=3, source=2, destination=1)) == (0, 2, 4)
    assert moved(cuts, 6, Move(layer=1, source=0, destination=1)) == (0, 1, 3)
