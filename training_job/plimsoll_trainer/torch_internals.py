"""Every private name of torch that Plimsoll uses, and what it is used for.

A private name may change with any release, so each stands here once. They are for:

    FakeTensorMode       tensors with shape and type, without data: traces and replay
    FakeTensor           one of them
    NEEDS_NUMBERS        what is raised where a number of theirs is asked for
    TorchDispatchMode    sees every operator: counts live bytes and work
    tree_iter, tree_map  walk what an operator takes and returns
    without_modes        runs an operator on real tensors in the middle of a trace
    attention_for_cpu .. operators that the CPU runs, by name
    storage_of           tells storages apart
    num_writes           tells whether a tensor was written to
    flash_attention ...  operators that a GPU runs, by name, on fake tensors
    single_process       lets torch's pipeline runtime run as one rank of many, alone,
                         in a process group in which nothing is sent: replay
    lists_by_default     lets optimizers choose as on a GPU, on fake tensors

`plimsoll_profiler.self_check` replays a toy against real processes and names the torch
version where the two differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, UntypedStorage
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as without_modes
from torch.utils._pytree import tree_iter, tree_map

__all__ = [
    "NEEDS_NUMBERS",
    "FakeTensor",
    "FakeTensorMode",
    "TorchDispatchMode",
    "attention_for_cpu",
    "attention_for_cpu_backward",
    "efficient_attention",
    "flash_attention",
    "lists_by_default",
    "math_attention",
    "num_writes",
    "single_process",
    "storage_of",
    "tree_iter",
    "tree_map",
    "unsafe_view",
    "without_modes",
]


NEEDS_NUMBERS = (DataDependentOutputException, DynamicOutputShapeException)
flash_attention = torch.ops.aten._scaled_dot_product_flash_attention
efficient_attention = torch.ops.aten._scaled_dot_product_efficient_attention
attention_for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
attention_for_cpu_backward = (
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
)
math_attention = torch.ops.aten._scaled_dot_product_attention_math
unsafe_view = torch.ops.aten._unsafe_view.default


class HeldTensor:
    """Stands for a send or receive: holds the tensor as the real one would."""

    def __init__(self, tensor: Tensor) -> None:
        """Hold a tensor until the object is dropped."""
        self._tensor = tensor

    def wait(self) -> None:
        """Return at once: nothing is under way."""


def pretend_p2p(
    operations: Sequence[dist.P2POp], desc: str | None = None
) -> list[HeldTensor]:
    """Send and receive nothing, but hold what the real operations hold."""
    del desc
    return [HeldTensor(operation.tensor) for operation in operations]


@contextmanager
def single_process(rank: int, num_ranks: int) -> Iterator[None]:
    """Be one rank of a process group that has no other members."""
    # Half of what torch takes to import, and only a replay comes here.
    from torch.distributed.pipelining import schedules, stage  # noqa: PLC0415
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    real = stage._PipelineStageBase._output_slot_is_releasable

    def slot_is_releasable(self: Any, output: Any) -> tuple[bool, str]:
        """Treat a fake output as what it stands for, a plain tensor."""
        if type(output) is FakeTensor and not self.is_last:
            return True, ""
        return real(self, output)

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=num_ranks)
    try:
        with (
            mock.patch.object(schedules, "_batch_p2p", pretend_p2p),
            mock.patch.object(
                stage._PipelineStageBase,
                "_output_slot_is_releasable",
                slot_is_releasable,
            ),
        ):
            yield
    finally:
        dist.destroy_process_group()


@contextmanager
def lists_by_default() -> Iterator[None]:
    """Let optimizers of fake CPU tensors walk them in lists, as those of a GPU do.

    What an optimizer does by default, torch decides from where its parameters lie and
    whether they are plain tensors; what its maker has asked for holds as ever.
    """
    defaults = sys.modules[Optimizer.__module__]  # torch.optim hides its own module
    with (
        mock.patch.object(
            defaults, "_get_foreach_kernels_supported_devices", return_value=["cpu"]
        ),
        mock.patch.object(defaults, "_foreach_supported_types", [FakeTensor]),
    ):
        yield


def storage_of(tensor: Tensor) -> tuple[int, UntypedStorage]:
    """Return a tensor's storage and a key that is its own while it lives."""
    storage = tensor.untyped_storage()
    return storage._cdata, storage


def num_writes(tensor: Tensor) -> int:
    """Return how often a tensor was written to since it was made."""
    return tensor._version
