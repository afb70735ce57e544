"""Answers to questions about values, where tensors have none.

Many models make an attention mask of ones where they are given none, and ask it whether
all of it is true: then they need none. `WholeMasks` knows. Weights are drawn until all
lie between bounds; `NoneOutside` says of those that are traced that they do.

In: a block of code. Called around forward passes and initialisations that are traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from plimsoll_trainer.torch_internals.operators import FakeTensor

KEEPING = {
    Tensor.to,
    Tensor.bool,
    Tensor.expand,
    Tensor.all,
    Tensor.__getitem__,
    torch.all,
}
"""Of a tensor that is all ones, or true, they make one that is as well."""


class WholeMasks(TorchFunctionMode):
    """Follows tensors of ones, and says that they are true."""

    def __init__(self) -> None:
        """Know of none."""
        super().__init__()
        self._known: dict[int, Tensor] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch, unless the answer is known."""
        del types
        is_known = bool(args) and id(args[0]) in self._known
        if func is Tensor.__bool__ and is_known:
            return True
        found = func(*args, **(kwargs or {}))
        if func is torch.ones or (func in KEEPING and is_known):
            self._known[id(found)] = found
        return found


class NoneOutside(TorchFunctionMode):
    """Lets tensors that are traced have nothing that is true, and no number but 0."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch, unless nobody could answer."""
        del types
        if args and isinstance(args[0], FakeTensor):
            if func is Tensor.__bool__:
                return False
            if func is Tensor.item:
                return 0.0
        return func(*args, **(kwargs or {}))
