"""Layers from one cut of the chain to another, one by one.

In: the first layers of the stages before and afterwards, and how full each stage would
be of any run of layers. Out: moves, after each of which every stage holds one run of
layers, at least one. Called by `revise`.

    before        [ 0 1 2 3 | 4 5 | 6 7 ]
    layer 3       [ 0 1 2 | 3 4 5 | 6 7 ]    or layer 5 first:  [ 0 1 2 3 | 4 | 5 6 7 ]
    layer 5       [ 0 1 2 | 3 4 | 5 6 7 ]

Each cut goes to its place in steps of one layer and none of them back, so there are as
few moves as can be. Of those that are possible the one comes first whose destination is
least full afterwards: a stage gives before it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from plimsoll_planner.records.revision import Cuts, Move, moved

Run = tuple[int, int]
"""First layer and end."""
Fullness = Callable[[int, int, int], float]
"""(stage, first layer, end) -> how full the stage is of these layers alone, between two
steps: a part of its device, or any number that grows with it."""


def moves_between(
    before: Cuts, after: Cuts, num_layers: int, fullness: Fullness
) -> tuple[Move, ...]:
    """Moves that lead from cuts to others of as many stages.

    There always is one that is possible: of the cuts that are to go up, the last can,
    for the next cut is at its place or to go down to one that is higher still.
    """
    found: list[Move] = []
    cuts = before
    while cuts != after:
        possible = [
            (
                fullness(move.destination, *run_of(then, move.destination, num_layers)),
                move.layer,
                move,
                then,
            )
            for move in wanted(cuts, after)
            if (then := moved(cuts, num_layers, move)) is not None
        ]
        _, _, move, cuts = min(possible, key=lambda one: one[:2])
        found.append(move)
    return tuple(found)


def wanted(cuts: Cuts, after: Cuts) -> list[Move]:
    """The next move of each cut that is not at its place, possible or not."""
    found: list[Move] = []
    for stage in range(1, len(cuts)):
        here, there = cuts[stage], after[stage]
        if here < there:  # the first layer of the stage goes to the one before
            found.append(Move(layer=here, source=stage, destination=stage - 1))
        elif here > there:  # the last layer of the stage before comes
            found.append(Move(layer=here - 1, source=stage - 1, destination=stage))
    return found


def run_of(cuts: Cuts, stage: int, num_layers: int) -> Run:
    """Layers of a stage."""
    ends = (*cuts[1:], num_layers)
    return cuts[stage], ends[stage]


def arrivals(
    before: Cuts, moves: Sequence[Move], num_layers: int
) -> Iterator[tuple[Move, Run, Run]]:
    """Yield each move, with the run of its destination before it and after it.

    Raises:
        ValueError: it is no move of the cuts before it.
    """
    cuts = before
    for move in moves:
        then = moved(cuts, num_layers, move)
        if then is None:
            raise ValueError(f"{move} is no move of {cuts}")
        without, within = (
            run_of(c, move.destination, num_layers) for c in (cuts, then)
        )
        yield move, without, within
        cuts = then
