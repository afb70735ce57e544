"""Gradients of a layer in one piece of memory, of which each parameter has its part.

    layer's buffer   [ weight ........ | bias .. | norm . ]     one all-reduce, no copy
                       ^ of weight       ^ of bias

They live as long as the parameters: what a backward pass computes is added to what is
there. So the gradients of a layer are exchanged, scaled and measured in place, and by
one operation each. A part is its parameter's `.grad`, which autograd adds to, unless
sums are kept in another type than the parameter's, as torch knows no such `.grad`:

    backward pass -> .grad in bf16 -> added to the part in fp32 -> gone

One such `.grad` is alive at a time, as without sums of another type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.split_tensors import (
    here,
    laid_out_as,
    let_whole_add_up_in,
    whole_of,
)

ALIGNMENT = 16
"""Numbers that a part is rounded up to, so that kernels can read whole vectors."""
SUM = "_plimsoll_gradient_sum"
"""Attribute of a parameter whose gradients are added up in another type."""


def attach_gradients(
    parameters: Iterable[nn.Parameter], dtype: torch.dtype
) -> list[Tensor]:
    """Give parameters their gradients, at zero; those that have one keep it.

    Args:
        parameters: of one layer.
        dtype: to add up in; a parameter of a wider type keeps that.

    Returns:
        One buffer for each type of sums among them.
    """
    own = [p for p in parameters if p.requires_grad and gradient_of(p) is None]
    groups = by_type_of_sums(own, dtype)
    return [attach_buffer(group, sums) for sums, group in groups.items()]


def by_type_of_sums(
    parameters: Iterable[nn.Parameter], dtype: torch.dtype
) -> dict[torch.dtype, list[nn.Parameter]]:
    """Parameters by the type that their gradients are added up in."""
    groups: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter in parameters:
        wider = torch.promote_types(parameter.dtype, dtype)
        groups.setdefault(wider, []).append(parameter)
    return groups


def attach_buffer(
    parameters: Sequence[nn.Parameter], dtype: torch.dtype, multiple: int = ALIGNMENT
) -> Tensor:
    """Make one buffer, of a multiple of numbers, and give parameters their parts."""
    size = rounded(sum(sizes_of(parameters)), multiple)
    buffer = torch.zeros(size, dtype=dtype, device=parameters[0].device)
    for parameter, own in zip(parameters, parts_of(buffer, parameters), strict=True):
        attach(parameter, own)
        if dtype != parameter.dtype:
            whole = whole_of(parameter)
            whole.register_post_accumulate_grad_hook(add_to_sum)  # type: ignore[no-untyped-call]
    return buffer


def attach(parameter: nn.Parameter, gradient: Tensor) -> None:
    """Let a tensor hold the sum of a parameter's gradients."""
    if gradient.dtype == parameter.dtype:
        parameter.grad = gradient
        let_whole_add_up_in(parameter, gradient)
    else:
        setattr(parameter, SUM, gradient)


def rounded(num_numbers: int, multiple: int = ALIGNMENT) -> int:
    """The least multiple that is enough."""
    return -(-num_numbers // multiple) * multiple


def sizes_of(parameters: Iterable[Tensor]) -> list[int]:
    """Numbers in the part of each parameter."""
    return [rounded(parameter.numel()) for parameter in parameters]


def parts_of(buffer: Tensor, parameters: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield each parameter's part of a buffer.

    In the parameter's own order in memory, as autograd and fused steps want it.
    """
    sizes = sizes_of(parameters)
    parts = torch.split(buffer, [*sizes, buffer.numel() - sum(sizes)])
    for parameter, part in zip(parameters, parts, strict=False):
        strides = torch.empty_like(parameter, device="meta").stride()
        place = part.storage_offset()
        yield torch.as_strided(part, parameter.shape, strides, place)


def add_to_sum(parameter: Tensor) -> None:
    """Add what a backward pass has computed, and let go of it."""
    computed, parameter.grad = parameter.grad, None
    if computed is not None:
        getattr(here(parameter), SUM).add_(laid_out_as(computed, parameter))


def gradient_of(parameter: Tensor) -> Tensor | None:
    """Sum of a parameter's gradients so far; None if it has none."""
    found: Tensor | None = getattr(parameter, SUM, parameter.grad)
    return found
