"""Answers to questions about values, where tensors have none.

Many models make an attention mask of ones where they are given none, and ask it whether
all of it is true: then they need none. `WholeMasks` knows. Weights are drawn until all
lie between bounds; `Starting` says of those that are traced that they do, and lets
alone those of modules that are in other layers.

In: a block of code. Called around forward passes and initialisations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from plimsoll_trainer.torch_internals.operators import FakeTensor

WRITING = re.compile(r"[a-z]_$")
"""In the name of a function that changes its first argument."""
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


class Starting(TorchFunctionMode):
    """Lets tensors that are traced have nothing that is true, and no number but 0.

    What is on the meta device, unless all is, belongs to other layers: nothing writes
    there.
    """

    def __init__(self) -> None:
        """Look where tensors are made."""
        super().__init__()
        self._is_all_meta = torch.get_default_device().type == "meta"

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch, unless nobody could answer."""
        del types
        first = args[0] if args else (kwargs or {}).get("tensor")
        if isinstance(first, FakeTensor):
            if func is Tensor.__bool__:
                return False
            if func is Tensor.item:
                return 0.0
        elif self._is_elsewhere(first) and WRITING.search(func.__name__):
            return first
        return func(*args, **(kwargs or {}))

    def _is_elsewhere(self, value: object) -> bool:
        """Whether it is a tensor of another layer."""
        return isinstance(value, Tensor) and value.is_meta and not self._is_all_meta
