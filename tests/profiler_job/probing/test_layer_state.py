"""State of layers at any micro-batch, and the part that ties share."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from torch import nn

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_profiler.probing.layer_state import tied_layers
from plimsoll_trainer.workload import Layer, Tie
from tests.support.workloads import a_sequential

FLOAT = 4


def test_each_tie_counts_its_own_optimizer_state() -> None:
    """AdamW keeps two floats for each of a parameter, and four bytes of step count."""
    workload = a_sequential()
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        tied = list(tied_layers(workload, bench))
    assert len(tied) == 2
    for tie in tied:
        assert tie.layers == (2, 4)
        assert tie.optimizer_bytes == 2 * tie.parameter_bytes + FLOAT


def a_pair() -> nn.Module:
    """Build two layers of one shape."""
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


def test_a_layer_that_holds_a_tensor_twice_is_named_once() -> None:
    """A tie within one layer is no matter between layers."""
    within = (("first", "0.bias"), ("first", "1.bias"))
    across = (("first", "0.weight"), ("first", "1.weight"), ("last", "0.weight"))
    workload = replace(
        a_sequential(),
        layers=tuple(
            Layer(name=name, factory=a_pair, kind="pair") for name in ("first", "last")
        ),
        ties=(Tie(places=within), Tie(places=across)),
    )
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        [tied] = tied_layers(workload, bench)
    assert tied.layers == (0, 1)
