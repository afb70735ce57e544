"""Shape and type of a tensor, without its numbers; as messages and records show it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Form of the tensor at one boundary; the first dimension counts samples."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSpec:
        """Form of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of such a tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    def empty(self, device: torch.device | str, *, grad: bool = False) -> Tensor:
        """Make a tensor like it, without values."""
        return torch.empty(
            self.shape, dtype=self.dtype, device=device, requires_grad=grad
        )

    def __str__(self) -> str:
        """Show it as in `float32[4, 128, 64]`."""
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def form_of(made: object) -> str:
    """Form of what user code gave, in a message."""
    return str(TensorSpec.of(made)) if isinstance(made, Tensor) else type(made).__name__
