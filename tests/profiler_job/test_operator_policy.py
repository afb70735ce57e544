"""Fake CPU tensors take the operators of a GPU, one test for each rule."""

from __future__ import annotations

from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.live_bytes import CUDA_BLOCK_BYTES
from plimsoll_profiler.meters import open_bench
from plimsoll_profiler.prober import probe_state
from plimsoll_trainer.workload import Layer, MakeOptimizer, Workload
from tests.support.workloads import mean_square, points

SMALL, LARGE = 4 * 128 * 128, 4 * 128 * 256


def three_matrices() -> nn.Module:
    """Build layers whose weights are whole blocks of the allocator."""
    sizes = (128, 128), (128, 256), (256, 128)
    return nn.Sequential(*(nn.Linear(*size, bias=False) for size in sizes))


def step_transient_bytes(make: MakeOptimizer, kind: DeviceKind) -> int:
    """Trace an optimizer's step for a kind of device."""
    workload = Workload(
        layers=(Layer(name="all", factory=three_matrices, kind="all"),),
        loss=mean_square,
        batch=points,
        optimizer=make,
    )
    with open_bench(kind, Source.TRACED) as bench:
        return probe_state(workload, 0, bench)[1].optimizer_transient_bytes


def test_an_optimizer_walks_lists_where_its_maker_left_it_open() -> None:
    """On a GPU AdamW holds the roots of all second moments at a time.

    One after the other, as on the CPU or where that was asked for, it holds the root of
    one and what becomes of it, two and a half of the largest matrix at its peak. Fused
    it holds no more than scalars.
    """
    adamw = torch.optim.AdamW
    loop, fused = partial(adamw, foreach=False), partial(adamw, fused=True)
    assert step_transient_bytes(adamw, DeviceKind.CUDA) == SMALL + 2 * LARGE
    one_by_one = step_transient_bytes(adamw, DeviceKind.EMULATED)
    assert LARGE < one_by_one <= 3 * LARGE
    assert step_transient_bytes(loop, DeviceKind.CUDA) == one_by_one
    assert step_transient_bytes(fused, DeviceKind.CUDA) <= 4 * CUDA_BLOCK_BYTES
