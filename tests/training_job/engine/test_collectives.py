"""Slices are added up and spread in place, by either way, with nothing on top."""

from __future__ import annotations

from unittest import mock

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine import collectives
from plimsoll_trainer.engine.collectives import gather_slices, reduce_slices
from tests.support.ranks import run_ranks

SIZE, NUM_RANKS = 3 * 4096, 3


def exchanged(in_place: bool) -> tuple[list[float], list[float], int]:
    """Reduce, then gather; return own sums, all values and the bytes held meanwhile."""
    rank, device = dist.get_rank(), EmulatedDevice()
    group = dist.distributed_c10d.GroupMember.WORLD
    assert isinstance(group, dist.ProcessGroup)
    own = slice(rank * SIZE // NUM_RANKS, (rank + 1) * SIZE // NUM_RANKS)
    gradients = torch.arange(SIZE, dtype=torch.float32) * 10.0**rank
    values = torch.full((SIZE,), float(rank))
    way = mock.patch.object(collectives, "goes_in_place", return_value=in_place)
    with way:
        before = device.current_bytes
        device.reset_peak()
        reduce_slices(gradients, own, group)
        gather_slices(values, own, group)
        held = device.peak_bytes - before
    step = SIZE // NUM_RANKS
    return gradients[own][:3].tolist(), values[::step].tolist(), held


@pytest.mark.parametrize("in_place", [False, True])
def test_every_owner_has_the_sum_and_all_have_every_slice(in_place: bool) -> None:
    """NCCL's way gives the same on gloo, which holds buffers of its own for it."""
    for rank, (sums, values, held) in enumerate(
        run_ranks(exchanged, NUM_RANKS, in_place)
    ):
        first = rank * SIZE // NUM_RANKS
        assert sums == [111.0 * (first + i) for i in range(3)]
        assert values == [0.0, 1.0, 2.0]
        assert held > SIZE if in_place else held < 256
