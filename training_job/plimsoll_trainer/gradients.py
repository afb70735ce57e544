"""Gradients of a layer in one piece of memory, of which each parameter sees its part.

    layer's buffer   [ weight ........ | bias .. | norm . ]     one all-reduce, no copy
                       ^ weight.grad     ^ bias.grad

They live as long as the parameters: autograd adds into what is there. So the gradients
of a layer are exchanged, scaled and measured in place, and by one operation each.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

ALIGNMENT = 16
"""Numbers that a part is rounded up to, so that kernels can read whole vectors."""


def attach_gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Give parameters their gradients, at zero; those that have one keep it.

    Returns:
        One buffer for each type of number among them.
    """
    by_dtype: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.requires_grad and parameter.grad is None:
            by_dtype.setdefault(parameter.dtype, []).append(parameter)
    return [attach_buffer(group) for group in by_dtype.values()]


def attach_buffer(parameters: list[nn.Parameter]) -> Tensor:
    """Make one buffer and let parameters of one type see their parts."""
    sizes = [-(-p.numel() // ALIGNMENT) * ALIGNMENT for p in parameters]
    first = parameters[0]
    buffer = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
    parts = torch.split(buffer, sizes)
    for parameter, part in zip(parameters, parts, strict=True):
        # In the parameter's own order in memory, as autograd and fused steps want it.
        strides = torch.empty_like(parameter, device="meta").stride()
        place = part.storage_offset()
        parameter.grad = torch.as_strided(part, parameter.shape, strides, place)
    return buffer
