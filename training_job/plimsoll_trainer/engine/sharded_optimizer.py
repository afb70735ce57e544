"""An optimizer of pieces of parameters that groups them as it would the whole ones.

Where replicas divide optimizer state, an optimizer steps on flat pieces of parameters.
A user's function that makes one sorts parameters into groups by their shapes, as by the
number of dimensions, and a flat piece of a matrix would land among the vectors. So the
function is given stand-ins that have the whole shapes and hold one number each; in the
groups that it made, pieces then take the places of what they are part of:

    stand-ins    [3 x 4] [4]      -> groups: decayed [3 x 4], not decayed [4]
    pieces here  numbers 8 .. 11 of the first, 0 .. 3 of the second
                                  -> groups: decayed [4 of 12], not decayed [4 of 4]

State that an optimizer makes along with itself (Adagrad) is cut likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import MakeOptimizer


@dataclass(frozen=True, kw_only=True, slots=True)
class PieceOf:
    """Numbers first .. end - 1 of a parameter, in its order in memory."""

    whole: Tensor
    first: int = 0
    end: int


def over_pieces(
    make: MakeOptimizer, wholes: Sequence[Tensor], places: Sequence[PieceOf]
) -> MakeOptimizer:
    """A function that makes the optimizer of flat pieces.

    Args:
        make: makes that of whole parameters.
        wholes: all parameters that it would be made for, in order.
        places: of the pieces; of some parameters there may be none.
    """
    return partial(make_over, make, wholes, places)


def make_over(
    make: MakeOptimizer,
    wholes: Sequence[Tensor],
    places: Sequence[PieceOf],
    pieces: Sequence[nn.Parameter],
) -> torch.optim.Optimizer:
    """Make the optimizer on stand-ins, then put the pieces in their places.

    Raises:
        WorkloadError: it works on other tensors than those that it was given.
    """
    stand_ins = [
        nn.Parameter(pieces[0].new_zeros(()).expand(whole.shape)) for whole in wholes
    ]
    stands_for = dict(zip(map(id, stand_ins), wholes, strict=True))
    pieces_of: dict[int, list[tuple[nn.Parameter, PieceOf]]] = {}
    for piece, place in zip(pieces, places, strict=True):
        pieces_of.setdefault(id(place.whole), []).append((piece, place))
    optimizer = make(stand_ins)
    groups = optimizer.param_groups
    if any(id(one) not in stands_for for group in groups for one in group["params"]):
        raise WorkloadError(
            f"the optimizer {type(optimizer).__name__} works on other tensors than "
            "the parameters that it is made for, so replicas cannot divide its "
            "state: plan with sharding none"
        )
    for group in groups:
        here = [id(stands_for[id(one)]) for one in group["params"]]
        group["params"] = [p for w in here for p, _ in pieces_of.get(w, ())]
    groups[:] = [group for group in groups if group["params"]]
    for stand_in, whole in zip(stand_ins, wholes, strict=True):
        if state := optimizer.state.pop(stand_in, None):
            for piece, place in pieces_of.get(id(whole), ()):
                cut = {key: cut_out(value, place) for key, value in state.items()}
                optimizer.state[piece] = cut
    return optimizer


def cut_out(value: object, place: PieceOf) -> object:
    """A piece's part of state that every number has; other state as it is."""
    if isinstance(value, Tensor) and value.shape == place.whole.shape:
        return value.reshape(-1)[place.first : place.end].clone()
    return value
