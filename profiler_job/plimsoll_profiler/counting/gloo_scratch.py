"""Memory that gloo takes inside collectives, where nobody is there to send to.

A gather and a scatter of sums need a second buffer of all that is gathered or summed,
from torch's allocator, until they are done (torch 2.15: 327,680 bytes at the peak of a
scatter of sums of 131,072, its copy in order and its result included). A sum of all for
all needs none. A prober and a replay are in a group in which nothing is sent, so the
buffer is made here, and is gone at once.

In: nothing. Out: a context. Called where bytes of the emulated device are counted,
which sends by gloo.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from torch import Tensor

from plimsoll_trainer.torch_internals.operators import collectives

NEED_SCRATCH = ("all_gather_into_tensor", "reduce_scatter_tensor")


class WithScratch:
    """A collective that takes what gloo takes."""

    def __init__(self, operator: Any) -> None:
        """Take the operator."""
        self._operator = operator

    def __call__(self, tensor: Tensor, *args: Any) -> Tensor:
        """Run it, with the buffer beside its result."""
        made: Tensor = self._operator(tensor, *args)
        tensor.new_empty(max(tensor.numel(), made.numel()))
        return made

    def __getattr__(self, name: str) -> Any:
        """Whatever else is asked of the operator."""
        return getattr(self._operator, name)


@contextmanager
def gloo_scratch() -> Iterator[None]:
    """Let collectives take what they take in gloo while the context is open."""
    with ExitStack() as stack:
        for name in NEED_SCRATCH:
            operator = WithScratch(getattr(collectives, name))
            stack.enter_context(mock.patch.object(collectives, name, operator))
        yield
