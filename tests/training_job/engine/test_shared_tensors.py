"""Tensors that layers share: who holds a copy, who owns it, which groups are built."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest

from plimsoll_planner.records.strategy import Mesh

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plimsoll_planner.overhead.allowance import num_communicators as planned
from plimsoll_planner.records.engine import Schedule
from plimsoll_trainer.engine.shared_tensors import (
    add_gradients,
    shared_tensors,
    spread_values,
    stages_that_share,
)
from plimsoll_trainer.engine.stage import StageSlice, build_stage
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.process.assignment import Assignment
from plimsoll_trainer.process.run import num_communicators
from plimsoll_trainer.workload import AdamW, Layer, Tie, Workload
from tests.support.ranks import run_ranks

CPU = torch.device("cpu")


class Scaled(nn.Module):
    """A linear layer and a table of constants."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, x: Tensor) -> Tensor:
        """[b, 3] -> [b, 3]."""
        y: Tensor = self.linear(x) * self.table
        return y


def tie(tensor: str, *layers: int, constant: bool = False) -> Tie:
    """Tie a tensor of some layers."""
    return Tie(places=tuple((str(i), tensor) for i in layers), constant=constant)


WEIGHTS = tie("linear.weight", 0, 3)
BIASES = tie("linear.bias", 3, 1, 2)
TABLES = tie("table", 0, 1, 2, 3, constant=True)


def a_workload(*ties: Tie) -> Workload:
    """Build four layers with ties."""
    fields: Any = {"loss": None, "batch": None, "optimizer": AdamW()}
    layers = tuple(Layer(name=str(i), factory=Scaled, kind="scaled") for i in range(4))
    return Workload(layers=layers, ties=ties, **fields)


def slices_of(cuts: Sequence[int]) -> tuple[StageSlice, ...]:
    """Layers of every stage."""
    return tuple(StageSlice(first_layer=a, end_layer=b) for a, b in pairwise(cuts))


def test_a_group_is_needed_where_some_stages_share_what_is_trained() -> None:
    """Not within a stage, not over all of them, not for constants, and once."""
    needed = partial(stages_that_share, a_workload(WEIGHTS, BIASES, TABLES))
    assert needed(slices_of((0, 4))) == []
    assert needed(slices_of((0, 2, 4))) == []
    assert needed(slices_of((0, 1, 2, 4))) == [(0, 2), (1, 2)]
    assert needed(slices_of((0, 1, 2, 3, 4))) == [(0, 3), (1, 2, 3)]
    twice = a_workload(WEIGHTS, tie("linear.bias", 3, 0))
    assert stages_that_share(twice, slices_of((0, 1, 3, 4))) == [(0, 2)]


def groups_built(cuts: Sequence[int], num_replicas: int) -> tuple[int, int]:
    """Number of groups of several ranks built with this rank; and as predicted."""
    built = [dist.get_world_size()]
    new_group = dist.new_group

    def counted(ranks: list[int], **fields: Any) -> object:
        if dist.get_rank() in ranks:
            built.append(len(ranks))
        return new_group(ranks, **fields)

    workload = a_workload(WEIGHTS, BIASES, TABLES)
    slices = slices_of(cuts)
    with mock.patch.object(dist.distributed_c10d, "new_group", counted):
        world = join_world(len(slices), num_replicas, CPU)
        stage = build_stage(workload, slices[world.stage], CPU)
        shared_tensors(workload, slices, stage, world)
    assignment = Assignment(
        slices=slices,
        num_replicas=num_replicas,
        num_parts=1,
        micro_batch=1,
        num_micro_batches=1,
        schedule=Schedule.ONE_F_ONE_B,
    )
    expected = num_communicators(workload, assignment, world)
    return sum(size > 1 for size in built), expected


@pytest.mark.parametrize(
    ("cuts", "replicas", "counts"),
    [
        ((0, 4), 1, [0]),
        ((0, 4), 2, [2, 2]),
        ((0, 2, 4), 1, [2, 2]),
        ((0, 1, 2, 4), 1, [3, 3, 4]),
        ((0, 1, 3, 4), 2, [4, 4, 4, 4, 5, 5]),
    ],
)
def test_communicators_are_counted_as_they_are_built(
    cuts: tuple[int, ...], replicas: int, counts: list[int]
) -> None:
    """As many as the report says, and as the planner allows for."""
    found = run_ranks(groups_built, len(counts), cuts, replicas)
    assert found == [(count, count) for count in counts]
    least, most = planned(Mesh(pipeline=len(cuts) - 1, data=replicas), 2)
    assert all(least <= count <= most for count in counts)


def copies_after_an_exchange(cuts: Sequence[int]) -> dict[str, tuple[list[float], int]]:
    """Sum of each gradient, and whose values the copies have."""
    workload = a_workload(WEIGHTS, BIASES, TABLES)
    slices = slices_of(cuts)
    world = join_world(len(slices), 1, CPU)
    stage = build_stage(workload, slices[world.stage], CPU)
    shared = shared_tensors(workload, slices, stage, world)
    names = {id(p): name for name, p in stage.layers.named_parameters()}
    found = {}
    with torch.no_grad():
        for one in shared:
            one.tensor.fill_(world.stage)
            assert one.tensor.grad is not None
            one.tensor.grad.fill_(10**world.stage)
    spread_values(shared)
    add_gradients(shared)
    for one in shared:
        assert one.tensor.grad is not None
        values = [float(one.tensor.flatten()[0]), float(one.tensor.grad.flatten()[0])]
        found[names[id(one.tensor)]] = (values, one.owner_rank)
    return found


def test_copies_have_the_owners_values_and_the_sum_of_gradients() -> None:
    """The owner is the stage of the first place; a stage takes part once."""
    first, middle, last = run_ranks(copies_after_an_exchange, 3, (0, 1, 2, 4))
    assert first == {"0.linear.weight": ([0.0, 101.0], 0)}
    assert middle == {"1.linear.bias": ([2.0, 110.0], 2)}
    assert last == {
        "3.linear.weight": ([0.0, 101.0], 0),
        "2.linear.bias": ([2.0, 110.0], 2),
    }


def test_layers_of_a_stage_hold_one_tensor() -> None:
    """Parameters and constants alike; its gradient is in the first layer's buffer."""
    stage = build_stage(a_workload(WEIGHTS, BIASES, TABLES), slices_of((0, 4))[0], CPU)
    layers: list[Any] = [stage.layers[str(i)] for i in range(4)]
    assert layers[0].linear.weight is layers[3].linear.weight
    assert layers[1].linear.bias is layers[2].linear.bias is layers[3].linear.bias
    assert len({id(layer.table) for layer in layers}) == 1
    sizes = [sum(b.gradients.numel() for b in stage.flat[str(i)]) for i in range(4)]
    assert sizes == [32, 32, 16, 0]


def test_a_parameter_is_no_constant() -> None:
    """Its gradients would silently stay apart."""
    workload = a_workload(tie("linear.weight", 0, 1, constant=True))
    with pytest.raises(WorkloadError, match="is a parameter: leave constant=True out"):
        build_stage(workload, slices_of((0, 1, 4))[0], CPU)
