"""The module on fake tensors, and how a layer gets real ones in their place.

In: a module with its values, or a function that builds one. Out: a `FakeModule`. Of a
module the values are kept in the host's memory and every layer begins with them; a
function is called once, on fake tensors, and every layer builds its own under its own
seed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from plimsoll_trainer.adapters import sequential
from plimsoll_trainer.adapters.any_module.construction import (
    Construction,
    build_recorded,
    like,
)
from plimsoll_trainer.engine.wrapped_modules import check_unwrapped
from plimsoll_trainer.errors import WorkloadError, described
from plimsoll_trainer.torch_internals.graphs import ShapeEnv
from plimsoll_trainer.torch_internals.operators import FakeTensor, FakeTensorMode

Factory = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False, slots=True)
class FakeModule:
    """A module whose tensors have shape and type, but no bytes."""

    module: nn.Module
    mode: FakeTensorMode
    """Of its tensors; inputs are made in it."""
    record: Construction | None = None
    """How a function built it."""
    values: Mapping[int, Tensor] = field(default_factory=dict)
    """Real values by the identity of the fake tensor, of a module that had some."""

    @property
    def name(self) -> str:
        """Name of the module in a message."""
        return type(self.module).__name__

    def real(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Tensors in place of those of the fake module, on torch's default device.

        A tensor that is no fake one is a constant of the code.
        """
        recorded = [one for one in tensors if self._is_recorded(one)]
        built = iter(self.record.values_of(recorded) if self.record else ())
        return [
            like(one, next(built))
            if self._is_recorded(one)
            else sequential.filled(one, self.values[id(one)])
            if id(one) in self.values
            else one.to(torch.get_default_device(), copy=True)
            for one in tensors
        ]

    def _is_recorded(self, tensor: Tensor) -> bool:
        """Whether the record says how to build a tensor."""
        return self.record is not None and isinstance(tensor, FakeTensor)


def fake_module_of(module: nn.Module | Factory, dtype: torch.dtype) -> FakeModule:
    """A module, or what a function builds, on fake tensors of a type.

    Raises:
        WorkloadError: the function fails or gives no module, or the module is wrapped.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        if isinstance(module, nn.Module):
            check_unwrapped("the module", module)
            return taken_over(module, mode)
        return built(module, mode)
    finally:
        torch.set_default_dtype(before)


def built(factory: Factory, mode: FakeTensorMode) -> FakeModule:
    """What a function builds, on fake tensors.

    Raises:
        WorkloadError: it fails, or gives no module.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            module, record = build_recorded(factory, mode)
    except WorkloadError:
        raise
    except Exception as error:
        raise WorkloadError(
            f"the function that builds the module fails: {described(error)}; it is "
            "called without values in its tensors, so give a module that exists if its "
            "code needs them"
        ) from error
    if not isinstance(module, nn.Module):
        raise WorkloadError(
            f"from_module is given a function that returns {type(module).__name__}: "
            "give an nn.Module, or a function that returns one"
        )
    check_unwrapped("the module", module)
    return FakeModule(module.train(), mode, record=record)


def taken_over(module: nn.Module, mode: FakeTensorMode) -> FakeModule:
    """A module that exists, on fake tensors; its values go to the host's memory."""
    tensors = list(sequential.tensors_in(module))
    fakes: list[Tensor] = []
    for tensor in tensors:
        is_number = tensor.is_floating_point()
        dtype = torch.get_default_dtype() if is_number else tensor.dtype
        with mode:
            made = torch.empty(tensor.shape, dtype=dtype, device="cpu")
            fakes.append(sequential.like(tensor, made))
    memo: dict[int, Any] = {
        id(tensor): fake for tensor, fake in zip(tensors, fakes, strict=True)
    }
    values = {
        id(fake): sequential.on_host(tensor)
        for tensor, fake in zip(tensors, fakes, strict=True)
    }
    return FakeModule(copy.deepcopy(module, memo).train(), mode, values=values)
