"""The scale of a loss follows torch's own rules."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_trainer.engine.loss_scale import is_finite, loss_scale_of
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from plimsoll_trainer.workload import LossScaling
from tests.support.workloads import a_gpt


def test_the_scale_is_that_of_torchs_scaler() -> None:
    """Over steps of which some overflow, at random."""
    rules = LossScaling(first=1024.0, growth=4.0, backoff=0.25, steps_to_growth=3)
    scale = loss_scale_of(a_gpt(precision="fp16", loss_scaling=rules))
    assert scale is not None
    scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=1024.0,
        growth_factor=4.0,
        backoff_factor=0.25,
        growth_interval=3,
    )
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    source, seen = random.Random(1), set()  # noqa: S311 - no secret
    for _ in range(60):
        overflows = source.random() < 0.2
        parameter.grad = torch.tensor([torch.inf if overflows else 1.0])
        scaler.scale(torch.ones(1))
        scaler.step(optimizer)
        scaler.update()
        scale.follow(overflows=overflows)
        assert scale.value == scaler.get_scale()
        seen.add(scale.value)
    assert len(seen) > 3


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-pure", "bf16-autocast"])
def test_other_precisions_have_no_scale(precision: str) -> None:
    """Their exponents are those of fp32."""
    assert loss_scale_of(a_gpt(precision=precision)) is None


def test_a_norm_without_a_number_counts_as_finite() -> None:
    """As in a replay, which steps then."""
    assert not is_finite(torch.tensor(torch.nan))
    assert not is_finite(torch.tensor(torch.inf))
    assert is_finite(torch.tensor(1.0))
    with FakeTensorMode():
        assert is_finite(torch.tensor(torch.inf) * 1.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"first": 0.0}, "first 0.0 is not above 0"),
        ({"growth": 1.0}, "growth 1.0 is not above 1"),
        ({"backoff": 1.0}, "backoff 1.0 is not between 0 and 1"),
        ({"steps_to_growth": 0}, "steps_to_growth 0 is not 1 or more"),
    ],
)
def test_a_scale_that_would_not_find_its_way_is_refused(
    fields: dict[str, float], message: str
) -> None:
    """Where it is given."""
    with pytest.raises(WorkloadError, match=message):
        LossScaling(**fields)  # type: ignore[arg-type]
