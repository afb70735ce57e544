"""Tensor groups: ranks that share each layer train the same model as one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.gradients import gradient_of
from plimsoll_trainer.engine.split_tensors import here, is_split, parameters_here
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from tests.support.ranks import run_ranks
from tests.support.split_workloads import a_split_gpt, a_whole_gpt
from tests.training_job.test_transparency import (
    BF16,
    EMBEDDING,
    NUM_STEPS,
    Kind,
    Trace,
    make_whole,
    relative,
    train_alone,
)

CPU = torch.device("cpu")
FP32 = (1e-5, 1e-5)
"""Sums over ranks are added up in another order than in one process."""


@dataclass(frozen=True, kw_only=True)
class SplitKind(Kind):
    """A kind of plan with a tensor group."""

    parts: int = 2

    @property
    def num_ranks(self) -> int:
        """G."""
        return self.num_stages * self.replicas * self.parts


KINDS = {
    "two parts": SplitKind(cuts=(0, 5), make=a_split_gpt, tolerances=FP32),
    "four parts": SplitKind(cuts=(0, 5), parts=4, make=a_split_gpt, tolerances=FP32),
    "layers that are not split": SplitKind(
        cuts=(0, 5), make=a_whole_gpt, tolerances=FP32
    ),
    "two stages, two replicas that divide state, recomputed": SplitKind(
        cuts=(0, 2, 5),
        replicas=2,
        divided=frozenset((0, 1)),
        recomputed=frozenset((1, 3)),
        caps=(1, 1),
        make=a_split_gpt,
        tolerances=FP32,
        workload=(("ties", (EMBEDDING,)), ("dropout", 0.2)),
    ),
    "bf16": SplitKind(
        cuts=(0, 2, 5),
        make=a_split_gpt,
        tolerances=BF16,
        workload=(("precision", Precision.BF16),),
    ),
}
QUICK_KINDS = ("two parts",)
PARAMS = [
    pytest.param(kind, id=name, marks=() if name in QUICK_KINDS else pytest.mark.slow)
    for name, kind in KINDS.items()
]


def train_ranks(kind: SplitKind) -> Trace:
    """Run as one rank of the plan."""
    world = join_world(kind.num_stages, kind.replicas, CPU, num_parts=kind.parts)
    trainer = Trainer(
        kind.make(**dict(kind.workload)),
        slices=kind.slices(),
        boundaries=boundaries_of(kind.make(**dict(kind.workload)), kind.micro_batch),
        num_micro_batches=kind.global_batch // kind.replicas // kind.micro_batch,
        world=world,
    )
    results = [trainer.run_step(step) for step in range(NUM_STEPS)]
    trainer.reduce_gradients(trainer.run_micro_batches(NUM_STEPS))
    make_whole(trainer)
    norms = [float(r.gradient_norm) for r in results if r.gradient_norm is not None]
    losses = [float(result.loss) for result in results]
    return losses, norms, dict(gradients_of(trainer))


def gradients_of(trainer: Trainer) -> Iterator[tuple[str, Tensor]]:
    """Yield all gradients as the whole model has them."""
    layers = trainer.stage.layers
    for name, parameter in layers.named_parameters(remove_duplicate=False):
        gradient = gradient_of(here(parameter))
        if gradient is not None and isinstance(parameter, DTensor):
            placed = parameter.device_mesh, parameter.placements
            whole = DTensor.from_local(
                gradient, *placed, shape=parameter.shape, stride=parameter.stride()
            )
            gradient = whole.full_tensor()
        if gradient is not None:
            yield name, gradient.clone()


@pytest.mark.parametrize("kind", PARAMS)
def test_a_tensor_group_trains_the_same_model(kind: SplitKind) -> None:
    """Losses, norms and every gradient equal one process, on all ranks."""
    losses, norms, gradients = train_alone(kind)
    ranks = run_ranks(train_ranks, kind.num_ranks, kind)
    tolerance, gradient_tolerance = kind.tolerances
    for their_losses, their_norms, their_gradients in ranks:
        assert their_losses == pytest.approx(losses, rel=tolerance)
        assert their_norms == pytest.approx(norms, rel=tolerance)
        for name, gradient in their_gradients.items():
            assert relative(gradient, gradients[name]) <= gradient_tolerance, name
    names = chain.from_iterable(their_gradients for _, _, their_gradients in ranks)
    assert set(gradients) == set(names)


def numbers_here() -> tuple[int, int, bool]:
    """Numbers of a block's parameters in all and here; all but norms and sums split."""
    kind = KINDS["two parts"]
    world = join_world(1, 1, CPU, num_parts=kind.parts)
    workload = a_split_gpt()
    trainer = Trainer(
        workload,
        slices=kind.slices(),
        boundaries=boundaries_of(workload, kind.micro_batch),
        num_micro_batches=1,
        world=world,
    )
    block = trainer.stage.layers["1"]
    whole = sum(parameter.numel() for parameter in block.parameters())
    lying = parameters_here(block)
    split = {name for name, p in block.named_parameters() if is_split(p)}
    biases = {f"{name}.bias" for name in ("q", "v", "up")}
    weights = {f"{name}.weight" for name in ("q", "k", "v", "up", "out", "down")}
    in_place = all(
        a.data_ptr() == here(b).data_ptr() == getattr(b, "_local_tensor", b).data_ptr()
        for a, b in zip(lying, block.parameters(), strict=True)
    )
    return whole, sum(p.numel() for p in lying), in_place and split == biases | weights


def test_each_rank_has_its_part() -> None:
    """A half of all matrices and of what lies between two, and all of the rest."""
    width = 48
    matrices, between = 12 * width**2, 2 * width + 4 * width
    rest = 4 * width + 2 * width
    for whole, lying, is_as_split in run_ranks(numbers_here, 2):
        assert whole == matrices + between + rest
        assert lying == matrices // 2 + between // 2 + rest
        assert is_as_split
