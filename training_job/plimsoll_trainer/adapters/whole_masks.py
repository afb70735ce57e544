"""Masks of ones are known to be whole, even where tensors have no values.

Many models make an attention mask of ones where they are given none, and ask it whether
all of it is true: then they need none. Without data nobody could answer. In: a block of
code. Called around the forward pass of a model that is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

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
