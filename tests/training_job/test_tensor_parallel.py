"""Tensor groups: ranks that share each layer train the same model as one process."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.split_tensors import here, is_split, parameters_here
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.workload import Tie
from tests.support.cases import at_night
from tests.support.ranks import run_ranks
from tests.support.split_workloads import a_split_gpt, a_whole_gpt
from tests.training_job.test_transparency import (
    AUTOCAST,
    BF16,
    CPU,
    EMBEDDING,
    FP16,
    FP16_TOLERANCES,
    SCALED,
    Kind,
    relative,
    train_alone,
    train_ranks,
)

FP32 = (1e-5, 1e-5)
"""Sums over ranks are added up in another order than in one process."""


FEWER: dict[str, Any] = {"global_batch": 8}
"""Samples, where another kind of the same split trains on more."""
NORMS = Tie(places=(("block.1", "norm_2.weight"), ("head", "norm.weight")))
"""Both are split as DTensors where sequences are."""
KINDS = {
    "two parts": Kind(cuts=(0, 5), parts=2, make=a_split_gpt, tolerances=FP32),
    "four parts": Kind(
        cuts=(0, 5), parts=4, global_batch=8, make=a_split_gpt, tolerances=FP32
    ),
    "layers that are not split": Kind(
        cuts=(0, 5), parts=2, make=a_whole_gpt, tolerances=FP32, **FEWER
    ),
    "two stages, two replicas that divide state, recomputed": Kind(
        cuts=(0, 2, 5),
        parts=2,
        replicas=2,
        divided=frozenset((0, 1)),
        level=Sharding.PARAMETERS,
        recomputed=frozenset((1, 3)),
        caps=(1, 1),
        global_batch=8,
        make=a_split_gpt,
        tolerances=FP32,
        workload=(("ties", (EMBEDDING,)), ("dropout", 0.2)),
    ),
    "bf16": Kind(
        cuts=(0, 2, 5),
        parts=2,
        make=a_split_gpt,
        tolerances=BF16,
        workload=(("precision", Precision.BF16),),
        **FEWER,
    ),
}
KINDS |= {
    "two parts of sequences": replace(KINDS["two parts"], sequence=True),
    "four parts of sequences, two stages": replace(
        KINDS["four parts"], cuts=(0, 2, 5), sequence=True, **FEWER
    ),
    "stages, replicas and all else with sequences": replace(
        KINDS["two stages, two replicas that divide state, recomputed"],
        sequence=True,
        workload=(("ties", (EMBEDDING, NORMS)), ("dropout", 0.2)),
    ),
    "bf16 with sequences": replace(KINDS["bf16"], sequence=True),
    "autocast with sequences": replace(
        KINDS["bf16"], sequence=True, workload=(AUTOCAST,)
    ),
    "fp16": replace(KINDS["bf16"], tolerances=FP16_TOLERANCES, workload=(FP16, SCALED)),
}
QUICK_KINDS = ("two parts",)
SIMILAR = (
    *("four parts", "two stages, two replicas that divide state, recomputed"),
    *("bf16", "bf16 with sequences", "fp16"),
)
"""Other kinds split the same and more: by sequence, or in autocast."""


@pytest.mark.parametrize("kind", at_night(SIMILAR, KINDS, QUICK_KINDS))
def test_a_tensor_group_trains_the_same_model(kind: Kind) -> None:
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
