"""Micro-batches whose operators are measured, and those that are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

pytest.importorskip("torch")

from torch import nn

from plimsoll_profiler.probing.grapher import profiled_graphs
from plimsoll_trainer.adapters.sequential import from_factories
from plimsoll_trainer.devices.device import HostDevice
from plimsoll_trainer.workload import AdamW, Workload
from tests.support.ranks import Died, try_ranks
from tests.support.workloads import mean_square, ramps

pytestmark = pytest.mark.slow
MIB = 2**20


def a_norm_over_samples() -> Workload:
    """A norm that finds no variance in a single sample."""
    return a_chain(
        {"norm": partial(nn.BatchNorm1d, 30), "last": partial(nn.Linear, 30, 6)}
    )


def a_wide_layer() -> Workload:
    """Activations of 16 KiB for each sample, several of them alive in one operator."""
    wide = 4096
    return a_chain(
        {
            "wide": partial(nn.Linear, 30, wide),
            "bend": nn.GELU,
            "last": partial(nn.Linear, wide, 6),
        }
    )


def a_chain(factories: dict[str, Callable[[], nn.Module]]) -> Workload:
    """Layers on samples of 30 numbers, which give 6."""
    return from_factories(
        {"flat": nn.Flatten, **factories},
        loss=mean_square,
        batch=ramps,
        optimizer=AdamW(learning_rate=1e-2),
    )


def micro_batches_of(
    make: Callable[[], Workload], sizes: Sequence[int], cap_bytes: int = 0
) -> list[int] | Died:
    """Micro-batches of the graphs that there are on an emulated device."""
    [found] = try_ranks(micro_batches_here, [cap_bytes], make, sizes)
    return found


def micro_batches_here(make: Callable[[], Workload], sizes: Sequence[int]) -> list[int]:
    """The same on this rank."""
    graphs = profiled_graphs(make(), sizes, HostDevice())
    return [one.micro_batch for one in graphs]


def test_a_micro_batch_that_the_model_does_not_take_is_left_out() -> None:
    """If it takes another; else its own words are the reason."""
    assert micro_batches_of(a_norm_over_samples, (4, 1, 2)) == [2, 4]
    refused = micro_batches_of(a_norm_over_samples, (1,))
    assert isinstance(refused, Died)
    assert "cannot be captured: ValueError: Expected more than 1 value" in refused.text


def test_a_micro_batch_of_which_an_operator_fills_the_device_is_left_out() -> None:
    """If a smaller one does not; else the operator is named.

    GELU of 256 samples has 4 MiB in and 4 MiB out.
    """
    assert micro_batches_of(a_wide_layer, (1, 256), 6 * MIB) == [1]
    full = micro_batches_of(a_wide_layer, (256,), 6 * MIB)
    assert isinstance(full, Died)
    first = full.text.splitlines()[0]
    assert first.startswith("DeviceFullError: operator aten.gelu")
    assert f"does not fit a device of {6 * MIB} bytes" in first
    assert micro_batches_of(a_wide_layer, (1, 256)) == [1, 256]
