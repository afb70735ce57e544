"""Parameters of which each rank of a tensor group has a part.

`Layer.parallelize` makes them DTensors of torch. Buffers, optimizers, norms and
checkpoints work on the part that is here: a plain parameter in the same memory.

    whole   DTensor of the module, 8 x 4, Shard(0) over two ranks    its gradient
    here    parameter, 4 x 4                                         the same memory

In: a tensor of a module, or the part that is here. Called by whoever asks for either.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from plimsoll_trainer.torch_internals import set_local

HERE, WHOLE = "_plimsoll_here", "_plimsoll_whole"
"""Attributes of a whole and of the part that is here: each other."""


def here(tensor: Tensor) -> Tensor:
    """The part of a tensor that is here, the same one at each call; all if not split.

    Of a parameter it is a parameter.
    """
    if not isinstance(tensor, DTensor):
        return tensor
    found: Tensor | None = getattr(tensor, HERE, None)
    if found is None:
        found = tensor.to_local().detach()
        if isinstance(tensor, nn.Parameter):
            found = nn.Parameter(found, requires_grad=tensor.requires_grad)
            setattr(tensor, HERE, found)
            setattr(found, WHOLE, tensor)
    return found


def whole_of(tensor: Tensor) -> Tensor:
    """The tensor of a module whose part is here: itself if it is not split."""
    whole: Tensor = getattr(tensor, WHOLE, tensor)
    return whole


def is_split(tensor: Tensor) -> bool:
    """Whether other ranks of the tensor group have other numbers of it."""
    whole = whole_of(tensor)
    if not isinstance(whole, DTensor):
        return False
    return not all(isinstance(one, Replicate) for one in whole.placements)


def parameters_here(layer: nn.Module) -> list[nn.Parameter]:
    """Parameters of a layer, those that are split as the parts that are here."""
    found = [here(parameter) for parameter in layer.parameters()]
    return [one for one in found if isinstance(one, nn.Parameter)]


def let_whole_add_up_in(part: Tensor, gradient: Tensor) -> None:
    """Let backward passes add the gradient of a whole up in that of its part."""
    whole = whole_of(part)
    if isinstance(whole, DTensor):
        whole.grad = DTensor.from_local(
            gradient,
            whole.device_mesh,
            whole.placements,
            run_check=False,
            shape=whole.shape,
            stride=whole.stride(),
        )


def laid_out_as(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The part of a gradient that is added to that of a parameter here."""
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
        return gradient.redistribute(placements=parameter.placements).to_local()
    return gradient


def move(part: nn.Parameter, memory: Tensor) -> None:
    """Let a parameter lie elsewhere; nothing is copied."""
    part.data = memory
    whole = whole_of(part)
    if isinstance(whole, DTensor):
        set_local(whole, memory)
