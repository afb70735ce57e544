"""Whether a loss is one that layers could learn from, found on fake tensors.

In: a workload, forms of the last layer's output and of targets. Called by `boundaries`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from plimsoll_trainer.engine.batches import DEBUG
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.tensor_specs import TensorSpec, form_of
from plimsoll_trainer.engine.token_pieces import check_pieces
from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.torch_internals.operators import NEEDS_NUMBERS
from plimsoll_trainer.workload import TokenLoss, Workload

CPU = torch.device("cpu")


def check_loss(workload: Workload, output: TensorSpec, targets: TensorSpec) -> None:
    """Run the loss on fake tensors.

    Raises:
        WorkloadError: it fails on the output, or gives no floating scalar, or one that
            nothing could learn from, or a count that is none.
    """
    last = workload.layers[-1].name
    try:
        made = output.empty("cpu", grad=True)
        found: object = workload.loss(made, targets.empty("cpu"))
    except NEEDS_NUMBERS as error:
        raise WorkloadError(
            "the loss asks for the value of a tensor, as .item(), int(), a condition "
            "or a mask do, and no value is known before training: return tensors, not "
            f"numbers made from them; {DEBUG}"
        ) from error
    except Exception as error:
        raise WorkloadError(
            f"the loss fails on {output} from layer {last!r} and targets {targets}: "
            f"{located(error)}; {DEBUG}"
        ) from error
    loss, count = parted(found)
    if not isinstance(loss, Tensor) or loss.ndim or not loss.is_floating_point():
        raise WorkloadError(
            f"the loss is {form_of(loss)}, but a scalar is needed: the mean over the "
            "samples, or a tuple of the sum over what counts and how many count"
        )
    if isinstance(count, Tensor) and (count.ndim or count.requires_grad):
        raise WorkloadError(
            f"the loss counts {form_of(count)}, but a scalar without a gradient is "
            "needed: a number, or a tensor made from the targets alone"
        )
    if not isinstance(count, Tensor) and not 0 < count < math.inf:
        raise WorkloadError(
            f"the loss counts {count}, but a finite number above 0 is needed: how many "
            "of the micro-batch count, as the number of its targets"
        )
    if not loss.requires_grad:
        raise WorkloadError(
            "nothing would be trained: the loss needs no gradient, though the output "
            "that it is made from does; let it detach nothing"
        )


def check_token_loss(
    workload: Workload, incoming: TensorSpec, targets: TensorSpec
) -> None:
    """Refuse a `TokenLoss` behind a layer that does not take tokens apart.

    Raises:
        WorkloadError: see `check_pieces`.
    """
    if isinstance(workload.loss, TokenLoss):
        last = build_layer(workload, len(workload.layers) - 1, CPU)
        name, x = workload.layers[-1].name, incoming.empty(CPU)
        check_pieces(name, last, workload.loss, x, targets.empty(CPU))


def parted(found: object) -> tuple[object, Tensor | float]:
    """Loss and count in what a loss gives.

    Raises:
        WorkloadError: a list, or a tuple of something else.
    """
    match found:
        case list():
            raise WorkloadError(
                f"the loss is a list of {', '.join(map(form_of, found))}, but a scalar "
                "or a tuple is needed: return (sum over what counts, how many count)"
            )
        case (loss, (Tensor() | int() | float()) as count):
            return loss, count
        case tuple():
            forms = ", ".join(map(form_of, found))
            raise WorkloadError(
                f"the loss is a tuple of {forms}, but one of two scalars is needed: "
                "the sum over what counts, and how many count"
            )
        case _:
            return found, 1.0
