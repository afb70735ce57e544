"""Pieces are in the groups of what they are part of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn, optim

from plimsoll_trainer.engine.sharded_optimizer import PieceOf, over_pieces
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import AdamW


def test_a_piece_of_a_matrix_is_decayed_like_a_matrix() -> None:
    """Options of groups stay; a parameter of which no piece is here is left out."""
    matrix, vector = nn.Parameter(torch.ones(4, 8)), nn.Parameter(torch.ones(8))
    places = [PieceOf(whole=matrix, first=16, end=32), PieceOf(whole=vector, end=8)]
    pieces = [nn.Parameter(torch.ones(16)), nn.Parameter(torch.ones(8))]
    wholes = [matrix, nn.Parameter(torch.ones(3, 3)), vector]
    made = over_pieces(AdamW(weight_decay=0.25), wholes, places)(pieces)
    groups = [(group["params"], group["weight_decay"]) for group in made.param_groups]
    assert [(len(params), decay) for params, decay in groups] == [(1, 0.25), (1, 0.0)]
    assert groups[0][0][0] is pieces[0]
    assert groups[1][0][0] is pieces[1]


def test_state_that_is_there_at_once_is_cut() -> None:
    """Of each number; what a parameter has once is left whole."""
    whole = nn.Parameter(torch.ones(4, 8))
    piece = nn.Parameter(torch.ones(5))
    place = PieceOf(whole=whole, first=3, end=8)
    made = over_pieces(optim.Adagrad, [whole], [place])([piece])
    assert list(made.state) == [piece]
    assert made.state[piece]["sum"].shape == (5,)
    assert made.state[piece]["step"].shape == ()


def test_an_optimizer_of_other_tensors_is_refused() -> None:
    """Its groups say nothing of the parameters."""

    def on_copies(parameters: Sequence[nn.Parameter]) -> optim.Optimizer:
        return optim.SGD([nn.Parameter(p.detach().clone()) for p in parameters])

    piece, whole = nn.Parameter(torch.ones(2)), torch.ones(4)
    with pytest.raises(WorkloadError, match="SGD works on other tensors than"):
        over_pieces(on_copies, [whole], [PieceOf(whole=whole, end=2)])([piece])


def test_the_place_of_a_parameter_among_all_counts() -> None:
    """A group may be chosen by it, and one without a piece is left out."""

    def first_apart(parameters: Sequence[nn.Parameter]) -> optim.Optimizer:
        first, *others = parameters
        groups: list[dict[str, Any]] = [
            {"params": [first], "lr": 9.0},
            {"params": others},
        ]
        return optim.SGD(groups, lr=0.1)

    wholes = [torch.ones(4), torch.ones(4)]
    piece = nn.Parameter(torch.ones(2))
    place = PieceOf(whole=wholes[1], end=2)
    (group,) = over_pieces(first_apart, wholes, [place])([piece]).param_groups
    assert group["lr"] == 0.1
    assert group["params"][0] is piece
