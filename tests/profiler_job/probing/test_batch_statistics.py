"""Layers whose work on a sample depends on the others of its micro-batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, fx, nn

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_profiler.probing.batch_statistics import (
    FOUND_BY_TRYING,
    batch_statistics,
    norms_over_samples,
)
from plimsoll_profiler.probing.layer_probe import LayerCase
from plimsoll_profiler.probing.messages import ProbeRequest
from plimsoll_profiler.probing.prober import Prober
from plimsoll_trainer.adapters.any_module import from_module
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import AdamW, Layer, TokenLoss
from tests.support.profiles import a_request, profile_here
from tests.support.ranks import run_on_device
from tests.support.workloads import VOCABULARY, a_gpt, sum_of_tokens

FORM = TensorSpec((4, 6, 8), torch.float32)


class Centred(nn.Module):
    """Takes the mean of a micro-batch away, by hand."""

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, width] -> [b, t, width]."""
        return x - x.mean(dim=0, keepdim=True)


class Logarithm(nn.Module):
    """Gives no number for half of what it is given."""

    def __init__(self, *, is_centred: bool = False) -> None:
        """Take the mean of a micro-batch away, or leave it."""
        super().__init__()
        self.is_centred = is_centred

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, width] -> [b, t, width]."""
        return torch.log(x - x.mean(dim=0) if self.is_centred else x)


class Picky(nn.Module):
    """Takes samples only if they are all alike."""

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, width] -> [b, t, width]."""
        if not bool((x == x[0]).all()):
            raise ValueError("samples that differ")
        return x


class Masked(nn.Module):
    """Makes numbers of truth values."""

    def forward(self, x: Tensor) -> Tensor:
        """[b, t] -> [b, t]."""
        return x.float()


class Scaled(nn.Module):
    """Draws a factor from a generator that is not torch's default one."""

    def __init__(self, draw: Callable[[], float]) -> None:
        """Draw so."""
        super().__init__()
        self.draw = draw

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, width] -> [b, t, width]."""
        return x * self.draw()


class RunningMean(nn.Module):
    """Takes away a mean over all samples that it has ever seen."""

    mean: Tensor

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, width] -> [b, t, width]."""
        self.mean = self.mean + x.detach().mean()
        return x - self.mean


def layers() -> dict[str, nn.Module]:
    """Build layers of both kinds."""
    return {
        "norm": nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(6)),
        "synchronous": nn.SyncBatchNorm(6),
        "running": nn.InstanceNorm1d(6, track_running_stats=True),
        "by hand": Centred(),
        "running by hand": RunningMean(),
        "Python's chance": Scaled(random.random),
        "numpy's chance": Scaled(np.random.rand),
        "its own chance": Scaled(np.random.default_rng().random),
        "of a sample": nn.Sequential(
            nn.Linear(8, 8), nn.LayerNorm(8), nn.GroupNorm(2, 6), nn.Dropout()
        ),
        "no number": Logarithm(),
        "no number by hand": Logarithm(is_centred=True),
        "attention": nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    }


def found(source: Source) -> dict[str, list[str]]:
    """Look at all of them; runs as an emulated device."""
    case = LayerCase(incoming=FORM, is_untrained=False)
    with open_bench(DeviceKind.EMULATED, source) as bench:
        return {
            name: batch_statistics(layer.train(), case, bench)
            for name, layer in layers().items()
        }


@pytest.mark.parametrize("source", [Source.TRACED, Source.MEASURED])
def test_layers_over_samples_are_found(source: Source) -> None:
    """By class, and where tensors have data by trying; norms of a sample are none."""
    seen = run_on_device(found, source)
    assert seen == {
        "norm": ["BatchNorm1d"],
        "synchronous": ["SyncBatchNorm"],
        "running": ["InstanceNorm1d"],
        "by hand": [FOUND_BY_TRYING] if source is Source.MEASURED else [],
        "running by hand": [FOUND_BY_TRYING] if source is Source.MEASURED else [],
        "Python's chance": [],
        "numpy's chance": [],
        "its own chance": [],
        "of a sample": [],
        "no number": [],
        "no number by hand": [FOUND_BY_TRYING] if source is Source.MEASURED else [],
        "attention": [],
    }


def found_of_inputs() -> dict[str, list[str]]:
    """Look at layers that take no floating numbers; runs as an emulated device."""
    tried: dict[str, tuple[nn.Module, torch.dtype]] = {
        "truth": (Masked(), torch.bool),
        "one row": (nn.Embedding(1, 8), torch.long),
        "two rows": (nn.Embedding(2, 8), torch.long),
        "refused": (nn.Sequential(nn.Embedding(2, 8), Picky()), torch.long),
    }
    with open_bench(DeviceKind.EMULATED, Source.MEASURED) as bench:
        return {
            name: batch_statistics(
                layer,
                LayerCase(incoming=TensorSpec((4, 6), dtype), is_untrained=True),
                bench,
            )
            for name, (layer, dtype) in tried.items()
        }


class Sums(nn.Module):
    """Adds up tokens so far."""

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, width] -> [b, t, width]."""
        return x.cumsum(1)


def a_head(*, mixes: bool) -> nn.Module:
    """Build a last layer whose tokens see one another, or do not."""
    first = Sums() if mixes else nn.LayerNorm(16)
    return nn.Sequential(first, nn.Linear(16, VOCABULARY))


def refusals() -> list[str]:
    """Probe both last layers with a loss in pieces; runs as an emulated device."""
    messages = []
    for mixes in (False, True):
        made = a_gpt(depth=1, width=16, tied=False, loss=TokenLoss(sum_of_tokens, 5))
        head = Layer(name="head", factory=partial(a_head, mixes=mixes), kind="head")
        prober = Prober(replace(made, layers=(*made.layers[:-1], head)), [2])
        request = ProbeRequest(case=len(prober.cases) - 1, micro_batch=2)
        try:
            with open_bench(DeviceKind.EMULATED, Source.MEASURED) as bench:
                prober.probe(request, bench)
        except WorkloadError as error:
            messages.append(str(error))
    return messages


def test_a_last_layer_that_mixes_tokens_is_not_cut() -> None:
    """Where tensors have data; one that does not mix them is."""
    [message] = run_on_device(refusals)
    assert message.startswith("layer 'head' gives a token another output alone than")
    assert message.endswith("the loss itself in place of TokenLoss(sum_of_tokens, ...)")


def test_what_cannot_be_tried_is_no_error() -> None:
    """Truth values have no minus, and a table of one row has no second index."""
    assert run_on_device(found_of_inputs) == {
        "truth": [],
        "one row": [],
        "two rows": [],
        "refused": [],
    }


@pytest.mark.parametrize(
    ("norm", "found"),
    [
        (nn.BatchNorm2d(4), {"batch_norm"}),
        (nn.BatchNorm2d(4, track_running_stats=False), {"batch_norm"}),
        (nn.InstanceNorm2d(4, track_running_stats=True), {"instance_norm"}),
        (nn.InstanceNorm2d(4), set[str]()),
        (nn.GroupNorm(2, 4), set[str]()),
    ],
)
def test_captured_layers_are_known_by_their_operators(
    norm: nn.Module, found: set[str]
) -> None:
    """Layers of `from_module` hold no module of the model, and a trace no data."""
    made = from_module(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), norm),
        torch.zeros(2, 3, 8, 8),
        loss=lambda output, _: output.mean(),
        batch=lambda *_: (torch.zeros(2, 3, 8, 8), torch.zeros(2)),
        optimizer=AdamW(learning_rate=1e-3),
    )
    graphs = [
        one.graph
        for layer in made.layers
        for one in layer.factory().modules()
        if isinstance(one, fx.GraphModule)
    ]
    assert graphs
    assert set().union(*map(norms_over_samples, graphs)) == found


def test_a_profile_records_them() -> None:
    """By kind of layer; the layers are named with what they hold."""
    made = profile_here(
        a_request("tests.support.workloads:a_sequential", micro_batches=(1, 2))
    )
    assert made.statistics_text == "'norm' (BatchNorm1d)"
    assert profile_here(a_request(micro_batches=(1, 2))).statistics_text == ""
