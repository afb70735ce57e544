"""Layers drop out and keep statistics in training alone."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_trainer.adapters.any_module import from_module
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import AdamW, Workload
from tests.support.any_models import Averages
from tests.support.chain_runs import built_layers, run_chain


class Dropping(nn.Module):
    """Drops out by a module, in attention, and whole paths; keeps statistics."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        """[b, 4, 8] -> [b, 4, 8]."""
        y = self.norm(self.drop(self.first(x)))
        rate = 0.5 if self.training else 0.0
        y = functional.scaled_dot_product_attention(y, y, y, dropout_p=rate)
        if self.training:
            y = y * y.new_empty((y.shape[0], 1, 1)).bernoulli_(0.5).div_(0.5)
        made: Tensor = self.last(x + y)
        return made


class Noisy(nn.Module):
    """Adds noise; nobody knows when."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """[b, 8] -> [b, 8]."""
        made: Tensor = self.layer(x + torch.randn_like(x))
        return made


def chain_of(module: nn.Module, x: Tensor) -> Workload:
    """Workload of a module with one input."""
    return from_module(
        module,
        x,
        loss=functional.mse_loss,
        batch=lambda *_: (x, x),
        optimizer=AdamW(),
    )


def test_evaluation_is_that_of_the_module() -> None:
    """Nothing drops out, running statistics are used and stay as they are."""
    torch.manual_seed(0)
    module, x = Dropping(), torch.randn(6, 4, 8)
    workload = chain_of(module, x)
    layers = built_layers(workload)
    assert any(not layer.recomputable for layer in workload.layers)
    training = [run_chain(workload, layers, [x]) for _ in range(2)]
    assert not torch.equal(*training)
    for layer in layers:
        layer.eval()
    buffers = {key: one for layer in layers for key, one in layer.named_buffers()}
    assert buffers["norm.num_batches_tracked"] == 2
    module.load_state_dict(buffers, strict=False)
    module.eval()
    expected = module(x)
    assert torch.equal(run_chain(workload, layers, [x]), expected)
    assert torch.equal(run_chain(workload, layers, [x]), expected)
    assert buffers["norm.num_batches_tracked"] == 2


def test_evaluation_writes_no_buffer() -> None:
    """Nor through what a write gives back, nor by `out`, as spectral norms do."""
    torch.manual_seed(0)
    module, x = Averages(), torch.randn(6, 1, 8)
    workload = chain_of(module, x)
    layers = built_layers(workload)
    run_chain(workload, layers, [x])
    buffers = {key: one for layer in layers for key, one in layer.named_buffers()}
    before = {key: one.clone() for key, one in buffers.items()}
    assert len(before) == 4
    assert before["mean"].any()
    for layer in layers:
        layer.eval()
    expected = run_chain(workload, layers, [x])
    assert torch.equal(run_chain(workload, layers, [x]), expected)
    for key, one in buffers.items():
        assert torch.equal(one, before[key]), key


def test_other_chance_has_no_evaluation() -> None:
    """Whether noise is added then is not known, so it is refused."""
    x = torch.randn(6, 8)
    workload = chain_of(Noisy(), x)
    layers = built_layers(workload)
    run_chain(workload, layers, [x])
    for layer in layers:
        layer.eval()
    with pytest.raises(WorkloadError, match=r"randn_like.* draws random numbers"):
        run_chain(workload, layers, [x])
