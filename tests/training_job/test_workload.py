"""A workload says what it holds, whatever machine is asked."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_planner.records.model_profile import DeviceKind, OptimizerMode, Precision
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import (
    AdamW,
    Layer,
    Tie,
    Workload,
    optimizer_mode,
    sample_optimizer,
)
from tests.support.workloads import a_gpt

CUDA, EMULATED = DeviceKind.CUDA, DeviceKind.EMULATED
FOREACH, FUSED, LOOP = OptimizerMode.FOREACH, OptimizerMode.FUSED, OptimizerMode.LOOP


@pytest.mark.parametrize(
    ("make", "device_kind", "mode"),
    [
        (torch.optim.AdamW, CUDA, FOREACH),
        (torch.optim.AdamW, EMULATED, LOOP),
        (torch.optim.RMSprop, CUDA, FOREACH),
        (partial(torch.optim.SGD, lr=0.1), CUDA, FOREACH),
        (partial(torch.optim.SGD, lr=0.1), EMULATED, LOOP),
        (partial(torch.optim.AdamW, fused=True), EMULATED, FUSED),
        (partial(torch.optim.AdamW, fused=False), CUDA, LOOP),
        (partial(torch.optim.AdamW, foreach=False), CUDA, LOOP),
        (partial(torch.optim.AdamW, foreach=True), EMULATED, FOREACH),
        (partial(torch.optim.AdamW, differentiable=True), CUDA, LOOP),
        (torch.optim.Adafactor, CUDA, LOOP),
        (AdamW(), CUDA, FUSED),
        (AdamW(mode=LOOP), CUDA, LOOP),
    ],
)
def test_the_mode_of_an_optimizer_is_that_of_the_device_planned_for(
    make: Any, device_kind: DeviceKind, mode: OptimizerMode
) -> None:
    """Torch's default is lists on a GPU, also while a trace for it lies on the CPU."""
    optimizer = make([nn.Parameter(torch.zeros(2, 2))])
    assert optimizer_mode(optimizer, device_kind) is mode


def forgets_to_return(parameters: object) -> None:
    """Make nothing."""


def needs_a_rate(parameters: object) -> torch.optim.Optimizer:
    """Raise."""
    raise KeyError(parameters)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            forgets_to_return,
            "gives NoneType, but an optimizer of torch.optim is needed",
        ),
        (
            needs_a_rate,
            r"cannot be made .*: KeyError: .* at .*test_workload\.py:\d",
        ),
    ],
)
def test_what_is_no_optimizer_is_refused(make: Any, message: str) -> None:
    """In one line, before anything is built."""
    with pytest.raises(WorkloadError, match=message):
        sample_optimizer(a_gpt(optimizer=make), "cpu")


def test_a_precision_is_one_of_two() -> None:
    """Another one is refused where it is given, not where a layer is built."""
    fields: Any = {"loss": None, "batch": None, "optimizer": None}
    layer = Layer(name="a", factory=nn.Identity, kind="x")
    with pytest.raises(WorkloadError, match=r"precision 'fp8' .* give fp32 or bf16"):
        Workload(layers=(layer,), precision="fp8", **fields)  # type: ignore[arg-type]
    named = Workload(layers=(layer,), precision="bf16", **fields)  # type: ignore[arg-type]
    assert named.precision is Precision.BF16
    assert named.gradient_precision is Precision.FP32
    with pytest.raises(WorkloadError, match=r"would round gradients .* leave it out"):
        Workload(layers=(layer,), gradient_precision=Precision.BF16, **fields)


def test_a_tensor_is_in_one_tie() -> None:
    """Two that meet would add up gradients in part; no layer is no place."""
    layers = tuple(Layer(name=n, factory=nn.Identity, kind="x") for n in "abc")
    fields: Any = {"layers": layers, "loss": None, "batch": None, "optimizer": None}
    first = Tie(places=(("a", "w"), ("b", "w")))
    Workload(ties=(first, Tie(places=(("b", "v"), ("c", "w")))), **fields)
    with pytest.raises(WorkloadError, match="'w' in layer 'b': it is in two ties"):
        Workload(ties=(first, Tie(places=(("b", "w"), ("c", "w")))), **fields)
    with pytest.raises(WorkloadError, match="'w' in layer 'd': there is no such layer"):
        Workload(ties=(Tie(places=(("a", "w"), ("d", "w"))),), **fields)
