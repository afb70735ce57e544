"""Operators and tensors: what sees, counts and names them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self
from unittest import mock

import torch
from torch import Tensor, UntypedStorage
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.optim import Optimizer
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as without_modes
from torch.utils._pytree import tree_iter, tree_map

# Imported for others; what is defined here needs no place in the list.
__all__ = [
    "BatchNorm",
    "FakeTensor",
    "FakeTensorMode",
    "TorchDispatchMode",
    "tree_iter",
    "tree_map",
    "without_modes",
]

swap_tensors: Callable[[Tensor, Tensor], None] = torch.utils.swap_tensors
copied_tensor: Callable[[Tensor, dict[int, Any]], Tensor] = Tensor.__deepcopy__
NEEDS_NUMBERS = (DataDependentOutputException, DynamicOutputShapeException)
flash_attention = torch.ops.aten._scaled_dot_product_flash_attention
efficient_attention = torch.ops.aten._scaled_dot_product_efficient_attention
math_attention = torch.ops.aten._scaled_dot_product_attention_math
unsafe_view = torch.ops.aten._unsafe_view.default
collectives = torch.ops._c10d_functional
wait_tensor = collectives.wait_tensor.default


@contextmanager
def convertible() -> Iterator[None]:
    """Within it, modules without data may be converted, as by `.float()`, and copied.

    For a conversion torch has tensors change places, but none that someone refers to,
    as modes do. A copy would be of another mode, and fails where numbers are known.
    """
    with (
        mock.patch.object(torch.utils, "swap_tensors", change_places),
        mock.patch.object(FakeTensor, "__deepcopy__", copied),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        yield


def change_places(tensor: Tensor, other: Tensor) -> None:
    """Let two tensors be each other, even where someone refers to one without data."""
    if isinstance(tensor, FakeTensor):
        own, theirs = dict(vars(tensor)), dict(vars(other))
        for one, attributes in ((tensor, theirs), (other, own)):
            vars(one).clear()
            vars(one).update(attributes)
        torch._C._swap_tensor_impl(tensor, other)
    else:
        swap_tensors(tensor, other)


def copied(fake: FakeTensor, memo: dict[int, Any]) -> Tensor:
    """A copy of a tensor without data, of the same mode."""
    memo.setdefault(id(fake.fake_mode), fake.fake_mode)
    with mock.patch.object(fake, "constant", None):
        return copied_tensor(fake, memo)


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


def set_local(tensor: DTensor, memory: Tensor) -> None:
    """Let the part of a tensor that is here lie in other memory; nothing is copied."""
    tensor._local_tensor = memory


class CountsHere(flop_counter._FlopCounterMode):  # type: ignore[no-untyped-call]
    """Leaves DTensors to themselves, which then compute with what is here."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Count an operator on tensors that are here."""
        if DTensor in types:
            return NotImplemented
        return super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


class FlopsHere(flop_counter.FlopCounterMode):
    """Counts what this rank does of operators on DTensors, not what all of them do."""

    def __enter__(self) -> Self:
        """Begin at zero."""
        with mock.patch.object(flop_counter, "_FlopCounterMode", CountsHere):
            super().__enter__()  # type: ignore[no-untyped-call]
        return self


def argument_names(packet: Any) -> list[str]:
    """Names of an operator's arguments, in order."""
    return [argument.name for argument in packet.default._schema.arguments]


def of_arguments(formula: Callable[..., int]) -> Callable[..., int]:
    """Let torch's counter of FLOPs call a formula with tensors in place of shapes."""

    def counted(*args: Any, **kwargs: Any) -> int:
        return formula(*args, **kwargs)

    counted._get_raw = True  # type: ignore[attr-defined] # as register_flop_formula
    return counted


def storage_of(tensor: Tensor) -> tuple[int, UntypedStorage]:
    """A tensor's storage and a key that is its own while it lives."""
    storage = tensor.untyped_storage()
    return storage._cdata, storage


def num_writes(tensor: Tensor) -> int:
    """Number of writes to a tensor since it was made."""
    return tensor._version


def is_written_part(tensor: Tensor) -> bool:
    """Whether a tensor was written to that shares memory with others unseen.

    Parts of `unsafe_chunk`, as gates of a GRU cell, have a number of writes each, so a
    write to one is not seen in the others, nor in what was copied for them before.
    """
    num_bytes = tensor.numel() * tensor.element_size()
    is_part = tensor._base is None and num_bytes < tensor.untyped_storage().nbytes()
    return is_part and tensor._version > 0


def is_of_operator(function: type) -> bool:
    """Whether torch made an autograd function, for an operator of `torch.library`."""
    return function.__qualname__.startswith("GeneratedBackwardFor_")


def has_hooks(tensor: Tensor) -> bool:
    """Whether code is called with a tensor's gradient."""
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)
