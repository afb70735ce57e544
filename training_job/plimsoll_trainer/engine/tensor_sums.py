"""The sum of a tensor, by which ranks see whether they hold the same, to the bit.

Its bits as whole numbers of up to 32 bits, times fixed random odd factors, modulo 2^64.
One other number always shows; several cancel out by a chance of about 2^-32. It is
taken piece by piece where the tensor lies, so nothing is copied to the host, and the
device holds two pieces on top: less than any step does.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.split_tensors import here
from plimsoll_trainer.random_keys import MASK, ODD
from plimsoll_trainer.torch_internals.operators import FakeTensor

PIECE, SMALL_PIECE = 2**19, 2**12
"""Numbers that are summed at a time, on a GPU and elsewhere."""
INTEGERS = {1: torch.uint8, 2: torch.int16}
"""By the bytes of a number; larger ones count as several of 32 bits."""
Sum = tuple[str, tuple[int, ...], int]
"""Type, shape and sum of a tensor."""


class Summer:
    """Sums tensors of one device."""

    def __init__(self, device: torch.device) -> None:
        """Draw the factors, alike in every process."""
        generator = torch.Generator().manual_seed(ODD)
        size = (PIECE if device.type == "cuda" else SMALL_PIECE,)
        drawn = torch.randint(-(2**63), 2**63 - 1, size, generator=generator)
        self._factors = drawn.bitwise_or_(1).to(device)

    @torch.no_grad()
    def sum_of(self, tensor: Tensor) -> Sum:
        """Type, shape and sum of a tensor; of different tensors they differ."""
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        flat = tensor.detach().permute(order).reshape(-1)  # as it lies: no copy
        whole = flat.view(INTEGERS.get(flat.element_size(), torch.int32))
        total = 0
        for piece in torch.split(whole, len(self._factors)):
            factors = self._factors[: len(piece)]
            total = (total * ODD + int(piece.long().mul_(factors).sum())) & MASK
        return str(tensor.dtype), tuple(tensor.shape), total


def sums_of_parameters(layer: nn.Module, device: torch.device) -> dict[str, Sum]:
    """Sums of a layer's parameters by name, of those that are split of what is here.

    None of those of a trace, which have no numbers.
    """
    summer = Summer(device)
    found = {name: here(parameter) for name, parameter in layer.named_parameters()}
    return {
        name: summer.sum_of(parameter)
        for name, parameter in found.items()
        if not isinstance(parameter, FakeTensor)
    }
