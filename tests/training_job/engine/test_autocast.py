"""Layers in autocast: one context for each pass of a layer, fp32 between layers."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.autocast import run_in_autocast
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.layer_forms import check_called
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import Layer
from tests.support.workloads import a_gpt

CPU = torch.device("cpu")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


class Seeing(nn.Module):
    """Notes the type that products have inside of it."""

    def __init__(self) -> None:
        """Build for vectors of 8."""
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        """[b, 8] -> [b, 8]."""
        y: Tensor = self.linear(x)
        self.seen.append(y.dtype)
        return y


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_a_layer_computes_in_less_and_passes_on_fp32(dtype: torch.dtype) -> None:
    """Forward, backward and when it is run again; outputs equal torch's own."""
    layer, x = Seeing(), torch.randn(3, 8, requires_grad=True)
    with torch.autocast("cpu", dtype):
        expected = layer(x)
    run_in_autocast(layer, "cpu", dtype)
    for _ in range(2):
        y = layer(x)
        assert y.dtype == FP32
        assert torch.equal(y, expected.float())
        y.sum().backward()
    assert layer.seen == [dtype] * 3
    weight = layer.linear.weight
    assert weight.dtype == FP32
    assert weight.grad is not None
    assert weight.grad.dtype == FP32
    assert not torch.is_autocast_enabled("cpu")


def test_a_layer_that_is_let_go_of_is_gone() -> None:
    """With its parameters, at once: none waits until it is collected."""
    layer = Seeing()
    run_in_autocast(layer, "cpu", BF16)
    layer(torch.ones(1, 8))
    gc.disable()
    try:
        there = weakref.ref(layer)
        del layer
        assert there() is None
    finally:
        gc.enable()


def test_a_forward_pass_that_somebody_has_replaced_is_kept() -> None:
    """As some libraries do, on the module itself."""
    layer = nn.Linear(8, 8)
    vars(layer)["forward"] = lambda x: 2 * x
    run_in_autocast(layer, "cpu", BF16)
    assert torch.equal(layer(torch.ones(1)), 2 * torch.ones(1))


def test_what_is_asked_of_a_layer_is_still_seen() -> None:
    """Two inputs are refused, and types between layers are those of the parameters."""
    layer = nn.Bilinear(8, 8, 8)
    run_in_autocast(layer, "cpu", BF16)
    with pytest.raises(WorkloadError, match="takes several inputs, input1, input2"):
        check_called(Layer(name="both", factory=nn.Identity, kind="both"), layer)
    workload = a_gpt(precision="bf16-autocast")
    kinds = {between.dtype for between in boundaries_of(workload, 2).between[1:]}
    assert kinds == {FP32}
    built = build_layer(workload, 1, CPU)
    assert {p.dtype for p in built.parameters()} == {FP32}
    run = partial(built, torch.zeros(1, 32, 48))
    saved: list[torch.dtype] = []

    def note(kept: Tensor) -> Tensor:
        saved.append(kept.dtype)
        return kept

    with torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept):
        run()
    assert BF16 in saved
