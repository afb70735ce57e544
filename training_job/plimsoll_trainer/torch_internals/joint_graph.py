"""Loss and gradients of a module as one graph of operators, without hidden writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_module
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

__all__ = [
    "Exported",
    "export_forward",
    "export_joint",
    "is_operator",
    "operator_of",
    "value_of",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """A graph, and what its placeholders and outputs are, by name."""

    module: fx.GraphModule
    states: dict[str, str]
    """Placeholder -> name of the parameter or buffer."""
    inputs: tuple[str, ...]
    """Placeholders of what the module is called with."""
    loss: str
    gradients: dict[str, str]
    """Name of a parameter -> node that returns its gradient."""
    written: dict[str, str]
    """Name of a buffer or parameter -> node that returns what it is after the step."""
    written_inputs: tuple[str, ...]
    """Inputs that the module writes to."""


def export_joint(module: nn.Module, inputs: tuple[Tensor, ...]) -> Exported:
    """Trace a module that returns a tuple of its loss, forward and backward."""
    return exported(module, inputs, is_joint=True)


def export_forward(module: nn.Module, inputs: tuple[Tensor, ...]) -> Exported:
    """Trace the forward pass alone."""
    return exported(module, inputs, is_joint=False)


def exported(
    module: nn.Module, inputs: tuple[Tensor, ...], *, is_joint: bool
) -> Exported:
    """Trace on tensors without data; all are of one `FakeTensorMode`."""
    index = 0 if is_joint else None
    with torch.set_grad_enabled(is_joint):
        found, signature = aot_export_module(
            module, inputs, trace_joint=is_joint, output_loss_index=index
        )
    traced = cast("fx.GraphModule", found)
    [output] = traced.graph.find_nodes(op="output")
    # By position: a node may be the gradient of two parameters.
    outputs = [getattr(one, "name", None) for one in tree_leaves(output.args)]
    written = {**signature.buffers_to_mutate, **signature.parameters_to_mutate}
    trained = [
        name
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and is_joint
    ]
    num_written = len(outputs) - len(trained) - 1
    gradients = dict(zip(trained, outputs[num_written + 1 :], strict=True))
    return Exported(
        module=traced,
        states={
            str(node): str(name)
            for found in (signature.inputs_to_parameters, signature.inputs_to_buffers)
            for node, name in found.items()
        },
        inputs=tuple(signature.user_inputs),
        loss=str(outputs[num_written]),
        gradients={name: str(node) for name, node in gradients.items()},
        written={str(name): str(node) for node, name in written.items()},
        written_inputs=tuple(signature.user_inputs_to_mutate.values()),
    )


def value_of(node: fx.Node) -> Any:
    """What a node returns, without data."""
    return node.meta.get("val")


def is_operator(target: Any) -> bool:
    """Whether a node calls an operator that is found by its name."""
    return isinstance(target, OpOverload)


def operator_of(name: str) -> Callable[..., Any]:
    """An operator by its name, such as `aten.add.Tensor`."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return cast("Callable[..., Any]", found)
