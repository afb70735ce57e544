"""Blocks are found by what depends on what."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_trainer.adapters.block_search import cut_nodes, find_blocks

BATCH, WIDTH = 2, 8


class Residual(nn.Module):
    """A list of its own, with a sum around it."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """[b, width] -> [b, width]."""
        y: Tensor = x + self.inner(x)
        return y


class Back(nn.Linear):
    """A linear layer from a large width."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__(99, WIDTH)


class Stage(nn.Module):
    """Some blocks, and a change of size behind them."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.blocks = nn.ModuleList([Residual(), Residual()])
        self.after = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """[b, width] -> [b, width]."""
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.after(x)
        return y


class Model(nn.Module):
    """A list of modules, and a way through them."""

    def __init__(
        self, make: Callable[[], nn.Module], through: Callable[[Model, Tensor], Tensor]
    ) -> None:
        """Build it."""
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.parts = nn.ModuleList([make(), make(), make()])
        self._through = through

    def forward(self, x: Tensor) -> Tensor:
        """[b, width] -> [b, width]."""
        return self._through(self, self.first(x))


def in_turn(model: Model, x: Tensor, rounds: int = 1) -> Tensor:
    """One after the other."""
    for part in rounds * [*model.parts]:
        x = part(x)
    return x


def led_around(model: Model, x: Tensor) -> Tensor:
    """What the second one is given is used behind the third one."""
    y = model.parts[0](x)
    z: Tensor = model.parts[2](model.parts[1](y)) + y
    return z


def backwards(model: Model, x: Tensor) -> Tensor:
    """The last one first."""
    for part in [*model.parts][::-1]:
        x = part(x)
    return x


def with_table(model: Model, x: Tensor) -> Tensor:
    """Something trained is made once, and given to all."""
    table = model.first.weight.sum()
    for part in model.parts:
        x = part(x) * table
    return x


def found(model: nn.Module) -> list[str]:
    """Blocks of a model."""
    x = torch.zeros(BATCH, WIDTH, device="meta")
    return list(find_blocks(model.to("meta"), lambda: model(x), BATCH))


PARTS = ["parts.0", "parts.1", "parts.2"]


def test_a_list_whose_members_follow_each_other_is_found() -> None:
    """Blocks with a sum around what is in them stay whole."""
    assert found(Model(Residual, in_turn)) == PARTS


def test_a_list_that_is_gone_through_again_is_a_chain_of_calls() -> None:
    """Each member then occurs several times."""
    assert found(Model(Residual, partial(in_turn, rounds=2))) == 2 * PARTS


def test_stages_are_opened() -> None:
    """Their blocks hold most of their parameters."""
    blocks = [f"{part}.blocks.{at}" for part in PARTS for at in (0, 1)]
    assert found(Model(Stage, in_turn)) == blocks


def test_a_model_may_be_its_tables_for_the_most_part() -> None:
    """A small list beside a large layer is found; one beside a large list is not."""
    stem = nn.Sequential(nn.LayerNorm(WIDTH), nn.Tanh())

    def with_stem(model: Model, x: Tensor) -> Tensor:
        return in_turn(model, stem(x))

    model = Model(Residual, in_turn)
    model.table = nn.Linear(1000, 1000)
    assert found(model) == PARTS
    model = Model(lambda: nn.Sequential(nn.Linear(WIDTH, 99), Back()), with_stem)
    model.stem = stem
    assert found(model) == PARTS


@pytest.mark.parametrize("through", [led_around, backwards, with_table])
def test_what_is_no_chain_is_not_found(
    through: Callable[[Model, Tensor], Tensor],
) -> None:
    """Something passes by a member, or they are called in another order."""
    assert found(Model(Residual, through)) == []


def test_a_cut_is_where_all_paths_meet() -> None:
    """Y and its square are, the two sides of a sum are not."""
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    left, right = y * 3, y * 5
    total = left + right
    end = total.square()
    cuts = cut_nodes(end)
    assert {y.grad_fn, total.grad_fn, end.grad_fn} == cuts
    assert not {left.grad_fn, right.grad_fn} & cuts
    assert cut_nodes(torch.ones(1)) == set()
