"""Kernels that are run for real in the middle of a trace."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_profiler import kernel_workspaces
from plimsoll_profiler.kernel_workspaces import KernelWorkspaces, multiplications
from plimsoll_trainer.torch_internals import FakeTensorMode, attention_for_cpu
from tests.support.ranks import run_ranks

aten = torch.ops.aten


def seen_workspaces() -> tuple[int, int, int, int]:
    """Ask for the attention of fake tensors; runs as an emulated device."""
    asked = KernelWorkspaces()
    with FakeTensorMode():
        rows = torch.empty(1, 4, 128, 32)
        fewer = rows[:, :2]
        found = asked.bytes_of(attention_for_cpu, (rows, rows, rows), {})
        kernel_workspaces.LONG = 0
        again = asked.bytes_of(attention_for_cpu, (rows, rows, rows), {})
        long = asked.bytes_of(attention_for_cpu, (fewer, fewer, fewer), {})
        other = asked.bytes_of(aten.add.Tensor, (rows, rows), {})
    return found, again, long, other


def test_a_kernel_is_run_once_for_each_kind_of_arguments() -> None:
    """Attention works block by block; one that takes long is not run at all.

    The second question is answered from memory: nothing may be run any more by then.
    """
    [(found, again, long, other)] = run_ranks(seen_workspaces, 1)
    assert found > 0
    assert (again, long, other) == (found, 0, 0)


def test_multiplications_are_counted() -> None:
    """Of [2, 3] by [3, 5] with a bias: 2 * 3 * 5; of 4 queries by 6 keys: twice."""
    bias, left, right = torch.empty(5), torch.empty(2, 3), torch.empty(3, 5)
    assert multiplications(aten.addmm.default, [bias, left, right]) == 30
    query, key = torch.empty(1, 2, 4, 8), torch.empty(1, 2, 6, 8)
    found = multiplications(attention_for_cpu, [query, key, key])
    assert found == 2 * (2 * 4 * 8) * 6
