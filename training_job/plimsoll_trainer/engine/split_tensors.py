"""Parameters of which each rank of a tensor group has a part.

`Layer.parallelize` makes them DTensors of torch. Buffers, optimizers, norms and
checkpoints work on the part that is here: a plain parameter in the same memory.

    whole   DTensor of the module, 8 x 4, Shard(0) over two ranks    its gradient
    here    parameter, 4 x 4                                         the same memory

In: a tensor of a module, or the part that is here. Called by whoever asks for either.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.sequence_parallel import gradient_is_part, used_on_parts
from plimsoll_trainer.torch_internals.operators import set_local

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
    return isinstance(whole, DTensor) and not is_alike(whole)


def is_alike(whole: DTensor) -> bool:
    """Whether all ranks of a mesh have the same numbers."""
    return all(isinstance(one, Replicate) for one in whole.placements)


def parameters_here(layer: nn.Module) -> list[nn.Parameter]:
    """Parameters of a layer, those that are split as the parts that are here."""
    found = [here(parameter) for parameter in layer.parameters()]
    return [one for one in found if isinstance(one, nn.Parameter)]


def declare_gradients(name: str, module: nn.Module) -> None:
    """Note which gradients of a layer are parts of a sum, if sequences are split.

    Of a DTensor that no rank has a part of, each may have seen some of the sequence:
    torch makes a part of a sum of its gradient, whichever it is.

    Raises:
        WorkloadError: a plain parameter of layer `name` is trained, and nobody has
            declared what it is used on.
    """
    for path, parameter in module.named_parameters():
        if isinstance(parameter, DTensor):
            if not is_split(parameter):
                used_on_parts(parameter)
        elif parameter.requires_grad and gradient_is_part(parameter) is None:
            raise WorkloadError(
                f"parameter {path!r} of layer {name!r} is no DTensor where sequences "
                "are split, so whether its gradient is to be added up over the ranks "
                "is not known: let parallelize_sequence give its module the style "
                "SequenceParallel(), or call used_on_parts or used_on_whole of "
                "plimsoll_trainer.sequence_parallel for it"
            )


def is_part_of_sum(parameter: Tensor) -> bool:
    """Whether the gradient of a parameter is to be added up over a tensor group."""
    return gradient_is_part(whole_of(parameter)) is True


def placements_of_gradient(whole: DTensor) -> tuple[Placement, ...]:
    """How ranks of a tensor group have the gradient of a parameter, till it is summed.

    Were it alike on all of them, torch would add it up for each micro-batch.
    """
    if is_part_of_sum(whole):
        return tuple(Partial() for _ in whole.placements)
    return tuple(whole.placements)


def let_whole_add_up_in(part: Tensor, gradient: Tensor) -> None:
    """Let backward passes add the gradient of a whole up in that of its part."""
    whole = whole_of(part)
    if isinstance(whole, DTensor):
        whole.grad = DTensor.from_local(
            gradient,
            whole.device_mesh,
            placements_of_gradient(whole),
            run_check=False,
            shape=whole.shape,
            stride=whole.stride(),
        )


def laid_out_as(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The part of a gradient that is added to that of a parameter here.

    What is alike on all ranks and is to be added up over them counts on the first.
    """
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
        placements = placements_of_gradient(parameter)
        if is_part_of_sum(parameter) and is_alike(gradient):
            first = gradient.device_mesh.get_local_rank() == 0
            return gradient.to_local() * first
        return gradient.redistribute(placements=placements).to_local()
    return gradient


def move(part: nn.Parameter, memory: Tensor) -> None:
    """Let a parameter lie elsewhere; nothing is copied."""
    part.data = memory
    whole = whole_of(part)
    if isinstance(whole, DTensor):
        set_local(whole, memory)
