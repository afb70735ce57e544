"""Names do not depend on the plan, and every tensor is saved by exactly one rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.checkpoint.state import RankState, check_names, check_optimizer
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import AdamW, Layer, Workload
from tests.support.jobs import Job, events, texts
from tests.support.ranks import run_ranks
from tests.support.workloads import a_gpt

Names = dict[str, TensorSpec]


def trainer_of(
    cuts: Sequence[int],
    replicas: int,
    workload: Workload,
    sharding: Sharding = Sharding.NONE,
) -> Trainer:
    """Build this rank's trainer."""
    slices = [
        StageSlice(first_layer=first, end_layer=end, sharding=sharding)
        for first, end in pairwise(cuts)
    ]
    return Trainer(
        workload,
        slices=slices,
        boundaries=boundaries_of(workload, 2),
        num_micro_batches=8,
        world=join_world(len(slices), replicas, torch.device("cpu")),
    )


def names_of(
    cuts: Sequence[int], replicas: int, fields: dict[str, Any]
) -> tuple[Names, Names]:
    """Train a step; return what this rank holds, and what it saves."""
    trainer = trainer_of(cuts, replicas, a_gpt(width=16, **fields))
    trainer.run_step(0)
    state = RankState(trainer)
    held = {name: TensorSpec.of(part.tensor) for name, part in state.ranges().items()}
    own = {box.name: TensorSpec.of(box.tensor) for box in state.own_boxes()}
    return held, own


@pytest.mark.slow  # 4 s of CPU each: the ranks of several plans
@pytest.mark.parametrize(
    "fields", [{}, {"tied": False}, {"precision": Precision.BF16}], ids=str
)
def test_every_plan_saves_the_same_names_once(fields: dict[str, Any]) -> None:
    """One rank alone holds all; many hold and save the same, each name once."""
    ((alone, saved),) = run_ranks(names_of, 1, (0, 5), 1, fields)
    assert alone == saved
    assert "layers.block.1.qkv.weight" in alone
    assert "optimizer.head.norm.weight.exp_avg" in alone
    assert ("layers.head.token.weight" in alone) is (fields.get("tied") is False)
    masters = {name for name in alone if name.startswith("masters.")}
    assert bool(masters) is ("precision" in fields)
    assert all(alone[name].dtype is torch.float32 for name in masters)
    for cuts, replicas in (((0, 1, 4, 5), 1), ((0, 2, 5), 2)):
        ranks = run_ranks(names_of, (len(cuts) - 1) * replicas, cuts, replicas, fields)
        counted = Counter(name for _, own in ranks for name in own)
        assert set(counted.values()) == {1}
        assert {name: spec for _, own in ranks for name, spec in own.items()} == alone
        for held, _ in ranks:
            assert held.items() <= alone.items()


def boxes_of(replicas: int, sharding: Sharding) -> list[tuple[str, int, int]]:
    """Train a step; return name, numbers and the size of the whole of what is saved."""
    fields: dict[str, Any] = {"width": 16, "precision": Precision.BF16}
    trainer = trainer_of((0, 2, 5), replicas, a_gpt(**fields), sharding)
    trainer.run_step(0)
    return [
        (box.name, box.tensor.numel(), torch.Size(box.whole).numel())
        for box in RankState(trainer).own_boxes()
    ]


@pytest.mark.slow  # 3 s of CPU: the ranks of two plans
def test_every_number_of_divided_state_is_saved_once() -> None:
    """Under the names and shapes that one replica saves, parameters whole."""
    whole = run_ranks(boxes_of, 2, 1, Sharding.NONE)
    expected = {name: size for rank in whole for name, size, _ in rank}
    found = Counter[str]()
    ranks = run_ranks(boxes_of, 6, 3, Sharding.OPTIMIZER)
    for name, count, size in (box for rank in ranks for box in rank):
        found[name] += count
        assert size == expected[name]
        assert count == size or name.startswith(("masters.", "optimizer."))
    assert found == expected


def moved_by_making_state() -> tuple[float, int]:
    """Make the optimizers' state; return how far weights moved, and how many states."""
    trainer = trainer_of((0, 5), 1, a_gpt(width=16))
    before = [p.detach().clone() for p in trainer.stage.parameters()]
    state = RankState(trainer)
    num_before = len(state.ranges())
    state.make_optimizer_state()
    pairs = zip(before, trainer.stage.parameters(), strict=True)
    moved = max(float((a - b).abs().max()) for a, b in pairs)
    return moved, len(state.ranges()) - num_before


def test_making_the_optimizer_state_moves_nothing() -> None:
    """A step of zero is a step to the same place."""
    ((moved, num_states),) = run_ranks(moved_by_making_state, 1)
    assert moved == 0.0
    assert num_states > 0


class CountsInState(torch.optim.SGD):
    """Keeps a number that is no tensor."""

    def step(self, closure: Any = None) -> Any:
        """Step and count."""
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["count"] = 1


class CountsInGroup(torch.optim.SGD):
    """Keeps a number beside its settings, as some optimizers from elsewhere do."""

    def step(self, closure: Any = None) -> Any:
        """Step and count."""
        super().step(closure)
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1


class OnlyForMatrices(torch.optim.SGD):
    """Does not work on what it is tried on."""

    def step(self, closure: Any = None) -> Any:
        """Refuse."""
        del closure
        raise ValueError("larger, please")


def test_an_optimizer_that_cannot_be_saved_is_refused() -> None:
    """Before training, as far as one step on one number shows."""
    cpu = torch.device("cpu")
    for fine in (AdamW(), torch.optim.NAdam, torch.optim.Adafactor, OnlyForMatrices):
        check_optimizer(fine, cpu)
    with pytest.raises(WorkloadError, match="CountsInState keeps 'count' of type int"):
        check_optimizer(CountsInState, cpu)
    with pytest.raises(WorkloadError, match="CountsInGroup counts in its setting 'co"):
        check_optimizer(CountsInGroup, cpu)


def test_a_job_that_saves_ends_before_it_allocates(job: Job) -> None:
    """One that does not save may use any optimizer."""
    fields: dict[str, Any] = {"entrypoint": "tiny_model:counting_in_floats"}
    assert job.run((0, 5), 2, report="free", **fields) == [0]
    ends = job.try_to_run((0, 5), 2, saves=True, report="refused", **fields)
    assert "keeps 'count' of type float, but a checkpoint holds" in texts(ends)[0]
    (last,) = events(job.report("refused"), "observation")
    assert last["observation"]["peaks"] == []


def test_names_that_run_into_each_other_are_refused() -> None:
    """`a` with a tensor `b.c` and `a.b` with a tensor `c` would be one name."""

    def layers(*names: str) -> tuple[Layer, ...]:
        return tuple(Layer(name=n, factory=nn.Identity, kind="x") for n in names)

    fields: Any = {"loss": None, "batch": None, "optimizer": None}
    check_names(Workload(layers=layers("a", "ab", "a-b.c", "b.a"), **fields))
    with pytest.raises(WorkloadError, match=r"'a' and 'a\.b' cannot be told apart"):
        check_names(Workload(layers=layers("a.b", "a-b", "a"), **fields))
