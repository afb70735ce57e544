"""A rank that divides its state holds its slice of it, and nothing on top."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.gradients import ALIGNMENT
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.workload import Workload
from tests.support.ranks import run_ranks
from tests.support.workloads import a_gpt

pytestmark = pytest.mark.slow  # 3 s of CPU each: ranks of two levels
CPU = torch.device("cpu")
FP32, BF16 = {"tied": False}, {"tied": False, "precision": Precision.BF16}


@dataclass(frozen=True, kw_only=True)
class Held:
    """Bytes of a rank between two steps, and at the peak of one."""

    between: int
    peak: int


def held(fields: dict[str, Any], replicas: int, sharding: Sharding) -> Held:
    """Train on one stage; return what this rank holds."""
    workload, device = a_gpt(**fields), EmulatedDevice()
    boundaries = boundaries_of(workload, 2)
    world = join_world(1, replicas, CPU)
    gc.collect()
    before = device.current_bytes
    end = len(workload.layers)
    trainer = Trainer(
        workload,
        slices=[StageSlice(first_layer=0, end_layer=end, sharding=sharding)],
        boundaries=boundaries,
        num_micro_batches=2,
        world=world,
    )
    trainer.run_step(0)
    gc.collect()
    between = device.current_bytes - before
    device.reset_peak()
    trainer.run_step(1)
    return Held(between=between, peak=device.peak_bytes - before)


COUNT_BYTES = 8
"""Of the stage: how many losses count."""
STEP_BYTES = 4
"""Of each piece: how many steps it has taken."""


def expected(workload: Workload, replica: int, num_replicas: int) -> tuple[int, int]:
    """Bytes of a divided rank by the formula, and those of a whole one.

    p' + g' of the padded numbers, and of the slice two moments and in bf16 a master.
    """
    of_number = workload.dtype.itemsize + 4
    optimizer = 8 if workload.dtype is torch.float32 else 12
    divided = whole = COUNT_BYTES
    for index in range(len(workload.layers)):
        layer = build_layer(workload, index, CPU)
        sizes = [p.numel() for p in layer.parameters()]
        aligned = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
        unit = ALIGNMENT * num_replicas
        padded = -(-sum(aligned) // unit) * unit
        first, end = (padded // num_replicas * (replica + i) for i in range(2))
        divided += padded * of_number
        start = 0
        for size, room in zip(sizes, aligned, strict=True):
            own = max(0, min(end, start + size) - max(first, start))
            divided += own * optimizer + STEP_BYTES * (own > 0)
            start += room
        whole += sum(aligned) * 4 + sum(sizes) * workload.dtype.itemsize
        whole += sum(sizes) * optimizer + STEP_BYTES * len(sizes)
    return divided, whole


LATE_BYTES = 128
"""Losses, counts and squares of norms, which gloo's threads may let go late."""


@pytest.mark.parametrize(("fields", "replicas"), [(FP32, 2), (BF16, 3)])
def test_state_is_that_of_the_slice(fields: dict[str, Any], replicas: int) -> None:
    """To the byte, and a step's peak is less by as much as the state is.

    But for scalars of the step before.
    """
    divided = run_ranks(held, replicas, fields, replicas, Sharding.OPTIMIZER)
    whole = run_ranks(held, replicas, fields, replicas, Sharding.NONE)
    for replica in range(replicas):
        own, all_of_it = expected(a_gpt(**fields), replica, replicas)
        saved = whole[replica].peak - divided[replica].peak
        for found, exact in (
            (divided[replica].between, own),
            (whole[replica].between, all_of_it),
            (saved, all_of_it - own),
        ):
            assert found == pytest.approx(exact, abs=LATE_BYTES)
