"""Layers are timed in turn, where there is room for more than one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.live_bytes import LiveBytes
from plimsoll_profiler.counting.meters import Bench
from plimsoll_profiler.probing.layer_probe import LayerCase
from plimsoll_profiler.probing.layer_timing import CACHE_BYTES, num_in_turn, time_ways
from plimsoll_trainer.engine.tensor_specs import TensorSpec

B, N = 3, 8
BETWEEN = LayerCase(incoming=TensorSpec((B, N), torch.float32), is_untrained=False)
WAYS = (BETWEEN, replace(BETWEEN, recomputed=True))


@pytest.fixture
def bench() -> Bench:
    """Run in this process, with data."""
    return Bench(
        kind=DeviceKind.EMULATED,
        device=torch.device("cpu"),
        product="process",
        meter=LiveBytes(),
        is_real=True,
        block_bytes=1,
    )


@pytest.mark.parametrize("make", [nn.Flatten, partial(nn.ReLU, inplace=True)])
def test_a_layer_that_gives_back_its_input_is_timed(
    make: Callable[[], nn.Module], bench: Bench
) -> None:
    """Each run gets an input of its own, as each micro-batch does."""
    [(forward_s, backward_s)] = time_ways(make(), lambda: [make()], WAYS[:1], bench)
    assert forward_s > 0
    assert backward_s > 0


class Crowded(nn.Module):
    """Counts its runs; a copy fails as it does where the device is full."""

    def __init__(self, *, is_copy: bool) -> None:
        """Be the first layer, or a copy."""
        super().__init__()
        self.linear = nn.Linear(N, N)
        self.is_copy = is_copy
        self.num_runs = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[b, 8] -> [b, 8]."""
        self.num_runs += 1
        if self.is_copy:
            raise torch.OutOfMemoryError
        y: torch.Tensor = self.linear(x)
        return y


def test_a_layer_is_timed_alone_where_its_copies_do_not_fit(bench: Bench) -> None:
    """Whether they cannot be built or cannot run; all ways are timed alike."""
    layer, copy = Crowded(is_copy=False), Crowded(is_copy=True)

    def fail() -> list[nn.Module]:
        raise torch.OutOfMemoryError

    assert len(time_ways(layer, fail, WAYS, bench)) == len(WAYS)
    assert len(time_ways(layer, lambda: [copy], WAYS, bench)) == len(WAYS)
    assert copy.num_runs == 1


def test_other_errors_are_not_taken_for_a_full_device(bench: Bench) -> None:
    """A layer that raises is not timed again."""
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        time_ways(nn.Linear(N + 1, N), list, WAYS, bench)


def test_as_many_take_turns_as_fill_the_caches() -> None:
    """No more than the model has; a layer without parameters needs no turns."""
    assert num_in_turn(12, CACHE_BYTES // 4) == 4
    assert num_in_turn(3, CACHE_BYTES // 4) == 3
    assert num_in_turn(12, 2 * CACHE_BYTES) == 1
    assert num_in_turn(12, 0) == 1
