"""Parameters that no gradient comes back to are left as they are, as torch does."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plimsoll_trainer.engine.boundaries import boundaries_of, settled
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.equal_replicas import check_frozen
from plimsoll_trainer.engine.learned import in_all, listed
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import UnequalReplicasError
from plimsoll_trainer.workload import AdamW, Layer, Tie, Workload
from tests.support.chain_runs import train_alone
from tests.support.ranks import run_ranks

CPU = torch.device("cpu")
STEPS = 3
LINEAR = {"weight", "bias"}


class Detached(nn.Linear):
    """Lets no gradient through to what is before."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Run it."""
        return super().forward(input.detach())


linear, detached = partial(nn.Linear, 4, 4), partial(Detached, 4, 4)


class Idle(nn.Linear):
    """Has what it does not use, and what it uses for a side that nobody sees."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__(4, 4)
        self.unused, self.side = nn.Linear(2, 2), nn.Linear(4, 4, bias=False)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Run it."""
        found: Tensor = super().forward(input) + self.side(input).detach()
        return found


class Giving(nn.Module):
    """Passes one thing on and gives another, each by a layer of its own."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.passing, self.giving = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Two tensors."""
        return self.passing(x), self.giving(x)


class Taking(nn.Linear):
    """Takes a value, and looks at what is passed without a gradient."""

    def forward(self, input: Tensor, value: Tensor) -> Tensor:  # type: ignore[override] # noqa: A002
        """Run it."""
        return super().forward(value) + input.detach()


class Paired(nn.Module):
    """Has a matrix under two names."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        made: Tensor = self.second(self.first(x))
        return made


class Warming(nn.Linear):
    """Leaves its input as it is when it is called first."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__(4, 4)
        self.calls = [0]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Run it, from the second call on."""
        self.calls[0] += 1
        return super().forward(input) if self.calls[0] > 1 else input


class Dropped(nn.Linear):
    """Is left out by chance."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__(4, 4)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Run it, or not."""
        return input if random.random() < 1 else super().forward(input)  # noqa: S311


class Own(torch.autograd.Function):
    """Has a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The same."""
        del ctx
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The same."""
        del ctx
        return gradients[0]


class Unseen(Idle):
    """May have any parameter learn in a backward pass of its own."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Run it."""
        found: Tensor = Own.apply(super().forward(input))
        return found


def batch(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Vectors of 4 numbers."""
    x = torch.arange(first * 4, (first + count) * 4).view(count, 4).sin() + step
    return x, x.cos()


def chain(
    *factories: Callable[[], nn.Module], ties: tuple[Tie, ...] = (), **fields: Any
) -> Workload:
    """A workload on vectors of 4."""
    layers = tuple(
        Layer(name=f"layer.{place}", factory=factory, kind=str(factory))
        for place, factory in enumerate(factories)
    )
    return Workload(
        layers=layers,
        ties=ties,
        loss=nn.MSELoss(),
        batch=batch,
        optimizer=AdamW(learning_rate=0.1, weight_decay=0.5),
        **fields,
    )


def tied(*places: tuple[int, str]) -> Tie:
    """One tensor in some layers."""
    return Tie(places=tuple((f"layer.{index}", name) for index, name in places))


CASES: dict[str, tuple[Workload, dict[int, set[str]]]] = {
    "all learn": (chain(linear, linear), {}),
    "detached": (chain(linear, linear, detached, linear), {0: LINEAR, 1: LINEAR}),
    "tied to what learns": (
        chain(linear, detached, ties=(tied((0, "weight"), (1, "weight")),)),
        {0: {"bias"}},
    ),
    "tied by another name": (
        chain(
            linear, detached, Paired, ties=(tied((0, "weight"), (2, "second.weight")),)
        ),
        {0: {"bias"}},
    ),
    "unused": (
        chain(Idle, linear),
        {0: {"unused.weight", "unused.bias", "side.weight"}},
    ),
    "own backward pass": (chain(linear, Unseen), {}),
    "later calls": (chain(linear, Warming), {}),
    "chance": (chain(linear, Dropped), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_learns_nothing_is_found(name: str) -> None:
    """Within a layer, behind what is detached, and where it is tied.

    Where a graph does not show all that a layer does, it may learn anything.
    """
    workload, expected = CASES[name]
    assert boundaries_of(workload, 2).unlearned == expected


def test_what_differs_between_micro_batches_may_learn() -> None:
    """A profile counts what any of them trains."""
    found = [{0: {"a", "b"}, 1: {"c"}}, {0: {"b"}, 2: {"d"}}]
    sets = [{i: frozenset(names) for i, names in one.items()} for one in found]
    assert in_all(sets) == {0: {"b"}}
    assert in_all(sets[:1]) == found[0]


def test_a_gradient_comes_back_by_what_is_carried() -> None:
    """Of what is passed beside it none does."""
    layers = (
        Layer(name="giving", factory=Giving, kind="giving", gives=("value",)),
        Layer(name="taking", factory=lambda: Taking(4, 4), kind="t", takes=("value",)),
    )
    workload = Workload(
        layers=layers, loss=nn.MSELoss(), batch=batch, optimizer=AdamW()
    )
    found = boundaries_of(workload, 2).unlearned
    assert found == {0: {"passing.weight", "passing.bias"}}
    assert listed(workload, found, most=1) == "giving.passing.bias and 1 more"


def test_it_is_frozen_where_a_workload_comes_in() -> None:
    """Layers that differ in that are of different kinds; others stay as they are."""
    workload, boundaries = settled(chain(linear, detached, linear), 2)
    assert boundaries.unlearned == {0: LINEAR}
    assert not boundaries_of(workload, 2).unlearned
    trained = [
        {p.requires_grad for p in build_layer(workload, index, CPU).parameters()}
        for index in range(3)
    ]
    assert trained == [{False}, {True}, {True}]
    assert workload.layers[0].kind != workload.layers[2].kind
    whole = chain(linear, linear)
    assert settled(whole, 2)[0] is whole


def losses_of_ranks() -> list[float]:
    """Train with the front on a rank of its own."""
    workload, boundaries = settled(chain(linear, detached, Idle), 2)
    trainer = Trainer(
        workload,
        slices=[
            StageSlice(first_layer=0, end_layer=1),
            StageSlice(first_layer=1, end_layer=3),
        ],
        boundaries=boundaries,
        num_micro_batches=2,
        world=join_world(2, 1, CPU),
    )
    return [float(trainer.run_step(step).loss) for step in range(STEPS)]


def losses_of_torch() -> list[float]:
    """Train in one process, with one optimizer of torch's own."""
    return train_alone(chain(linear, detached, Idle), STEPS, 2, 2)


def freeze_other_than_the_other() -> str:
    """Settle another model on each rank; the error of this one."""
    models = chain(Idle, linear), chain(linear, linear)
    boundaries = boundaries_of(models[dist.get_rank()], 2)
    with pytest.raises(UnequalReplicasError) as raised:
        check_frozen(boundaries.unlearned, Control(timedelta(seconds=60)))
    return str(raised.value)


@pytest.mark.slow
def test_ranks_that_freeze_others_are_refused() -> None:
    """Before one waits for a gradient that the other does not send."""
    for text in run_ranks(freeze_other_than_the_other, 2):
        assert text.startswith("ranks 0 and 1 would train different models: ")
        assert "'side.weight' of layer 0 on one of them alone" in text


@pytest.mark.slow
def test_it_does_not_decay() -> None:
    """The front's weights count, though nothing changes them."""
    [expected] = run_ranks(losses_of_torch, 1)
    for losses in run_ranks(losses_of_ranks, 2):
        assert losses == pytest.approx(expected, rel=1e-6)
