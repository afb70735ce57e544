"""A rank's part of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.adapters.sequential import from_sequential
from plimsoll_trainer.engine.stage import StageSlice, build_stage
from plimsoll_trainer.workload import Loss
from tests.support.workloads import a_sequential, mean_square, points

CPU = torch.device("cpu")


@pytest.mark.parametrize("loss", [nn.functional.mse_loss, nn.functional.smooth_l1_loss])
def test_a_loss_keeps_no_other_memory_alive(loss: Loss) -> None:
    """A step holds as many losses as it has micro-batches: four bytes for each."""
    workload = a_sequential(loss=loss)
    part = StageSlice(first_layer=0, end_layer=len(workload.layers))
    stage = build_stage(workload, part, CPU)
    x, targets = workload.batch(0, 0, 4)
    held: torch.Tensor = stage(x, targets=targets)
    assert held.untyped_storage().nbytes() == 4
    assert held.requires_grad


def test_a_stage_may_begin_with_a_layer_that_overwrites() -> None:
    """The received tensor is a leaf, which torch lets nobody overwrite."""
    net = [nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 6)]
    workload = from_sequential(
        net, loss=mean_square, batch=points, optimizer=torch.optim.SGD
    )
    stage = build_stage(workload, StageSlice(first_layer=1, end_layer=3), CPU)
    x = torch.randn(4, 5, 6)
    alone = x.clone().requires_grad_()
    net[2](alone.relu()).sum().backward()
    received = x.clone().requires_grad_()
    stage(received).sum().backward()
    assert received.grad is not None
    assert alone.grad is not None
    assert torch.equal(received.grad, alone.grad)


@dataclass(frozen=True)
class Recorder:
    """Stands for a layer that is whole while at work, and notes when that is."""

    name: str
    order: list[str]

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Forward passes are not noted."""
        yield

    def begin_backward(self) -> None:
        """Note that it is whole."""
        self.order.append(f"{self.name} begins")

    def end_backward(self) -> None:
        """Note that it is let go of."""
        self.order.append(f"{self.name} ends")


@pytest.mark.parametrize(
    "between", [nn.Identity(), nn.Dropout(0.0), nn.Flatten(2), nn.ReLU(inplace=True)]
)
def test_one_layer_is_whole_at_a_time_around_one_that_gives_back_its_input(
    between: nn.Module,
) -> None:
    """Both boundaries of such a layer are one tensor, whose hooks run first to last."""
    net = [nn.Linear(6, 6), between, nn.Linear(6, 6)]
    workload = from_sequential(
        net, loss=mean_square, batch=points, optimizer=torch.optim.SGD
    )
    part = StageSlice(first_layer=0, end_layer=3)
    stage, order = build_stage(workload, part, CPU), list[str]()
    recorders: dict[str, Any] = {i: Recorder(i, order) for i in ("0", "2")}
    stage.gathered.update(recorders)
    x, targets = workload.batch(0, 0, 4)
    stage(x, targets=targets).backward()
    assert order == ["2 begins", "2 ends", "0 begins"]
