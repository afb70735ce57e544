"""Bytes of optimizers on the host, foreseen number by number.

That real ranks hold as many is in `test_host_optimizer`.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.engine.flat_buffers import Share
from plimsoll_trainer.engine.host_bytes import HostBytes, host_bytes
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.workload import AdamW, Layer, Workload
from tests.support.workloads import next_token_loss, tokens

ON_HOST = StageSlice(first_layer=0, end_layer=1, optimizer_home=OptimizerHome.HOST)
DIVIDED = StageSlice(
    first_layer=0,
    end_layer=1,
    optimizer_home=OptimizerHome.HOST,
    sharding=Sharding.OPTIMIZER,
)


class OfTwoTypes(nn.Module):
    """100 numbers in the workload's type, in a part of 112, and 32 in fp32."""

    def __init__(self) -> None:
        """Build both."""
        super().__init__()
        self.small = nn.Parameter(torch.zeros(10, 10))
        self.wide = nn.Parameter(torch.zeros(32, dtype=torch.float32))


def a_workload(precision: Precision, sums: Precision) -> Workload:
    """Build one layer."""
    return Workload(
        layers=(Layer(name="one", factory=OfTwoTypes, kind="one"),),
        loss=next_token_loss,
        batch=tokens,
        optimizer=AdamW(),
        precision=precision,
        gradient_precision=sums,
    )


def test_bytes_are_those_of_each_number() -> None:
    """Parameter, sum, and state, of parts that are filled up; masters in bf16.

    In bf16 the fp32 parameters have sums in fp32, in the buffer of the others.
    """
    fp32, bf16 = Precision.FP32, Precision.BF16
    assert host_bytes(a_workload(fp32, fp32), ON_HOST, Share()) == HostBytes(
        held=144 * (4 + 4) + 132 * 8,
        pinned=(144 * 4, 144 * 4),
    )
    mixed = host_bytes(a_workload(bf16, fp32), ON_HOST, Share())
    assert mixed == HostBytes(
        held=144 * 4 + 112 * 2 + 32 * 4 + 100 * 12 + 32 * 8,
        pinned=(144 * 4, 112 * 2, 32 * 4),
    )
    assert mixed.needed == mixed.held


def test_sums_in_bf16_are_cast_in_a_step() -> None:
    """In one piece of 4 bytes for each number of the layer that has most."""
    bf16 = Precision.BF16
    found = host_bytes(a_workload(bf16, bf16), ON_HOST, Share())
    assert found.on_top == 100 * 4
    assert found.held == 112 * (2 + 2) + 32 * (4 + 4) + 100 * 12 + 32 * 8


def test_a_replica_counts_its_slice() -> None:
    """Both slices together are all of it; a stage of the device takes nothing."""
    workload = a_workload(Precision.FP32, Precision.FP32)
    of_replicas = [
        host_bytes(workload, DIVIDED, Share(replica=d, num_replicas=2)) for d in (0, 1)
    ]
    padded = 160
    assert sum(one.held for one in of_replicas) == padded * 4 + 144 * 4 + 132 * 8
    on_device = StageSlice(first_layer=0, end_layer=1)
    assert host_bytes(workload, on_device, Share()) == HostBytes()
