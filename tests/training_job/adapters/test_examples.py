"""The examples are workloads that train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from examples import llama, mlp, tiny_gpt, wide_layer
from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice, build_stage
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from plimsoll_trainer.workload import Workload

each_example = pytest.mark.parametrize(
    "example",
    [tiny_gpt.workload, llama.workload, mlp.workload, wide_layer.workload],
    ids=lambda example: example.__module__,
)


@each_example
def test_an_example_learns(example: Callable[..., Workload]) -> None:
    """After some steps on one batch the loss is well below that of guessing."""
    workload = example(depth=2)
    part = StageSlice(first_layer=0, end_layer=len(workload.layers))
    stage = build_stage(workload, part, torch.device("cpu"))
    optimizer = workload.optimizer(list(stage.parameters()))
    batch = workload.batch(0, 0, 2)
    losses = []
    for _ in range(40):
        loss = stage(batch[0], targets=batch[1])
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


@each_example
def test_an_example_keeps_the_contract(example: Callable[..., Workload]) -> None:
    """Its layers chain, its batches repeat, and the samples follow from their index."""
    workload = example()
    boundaries_of(workload, 2)
    whole, _ = workload.batch(3, 0, 4)
    parts = [workload.batch(3, first, 2)[0] for first in (0, 2)]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize(
    ("example", "billions"),
    [
        (llama.llama_8b, 8.03),
        pytest.param(llama.llama_70b, 70.55, marks=pytest.mark.nightly),
    ],
)
def test_a_shape_has_the_parameters_of_its_name(
    example: Callable[..., Any], billions: float
) -> None:
    """As published, and in bf16 by default."""
    workload = example()
    assert workload.precision is Precision.BF16
    with FakeTensorMode():
        torch.set_default_dtype(workload.dtype)
        try:
            layers = [layer.factory() for layer in workload.layers]
        finally:
            torch.set_default_dtype(torch.float32)
    count = sum(p.numel() for layer in layers for p in layer.parameters())
    assert count / 1e9 == pytest.approx(billions, abs=0.01)
