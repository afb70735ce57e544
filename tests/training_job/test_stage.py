"""A rank's part of the model."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.stage import StageSlice, build_stage
from plimsoll_trainer.workload import Loss
from tests.support.workloads import a_sequential

CPU = torch.device("cpu")


@pytest.mark.parametrize("loss", [nn.functional.mse_loss, nn.functional.smooth_l1_loss])
def test_a_loss_keeps_no_other_memory_alive(loss: Loss) -> None:
    """A step holds as many losses as it has micro-batches: four bytes for each."""
    workload = a_sequential(loss=loss)
    part = StageSlice(first_layer=0, end_layer=len(workload.layers))
    stage = build_stage(workload, part, CPU)
    x, targets = workload.batch(0, 0, 4)
    held: torch.Tensor = stage(x, targets)
    assert held.untyped_storage().nbytes() == 4
    assert held.requires_grad
