"""Loss and gradients of a module as one graph of operators, without hidden writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_module
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """A graph, and what its placeholders and outputs are, by name.

    A tensor of the module that has two names is there twice.
    """

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
        traced, signature = aot_export_module(
            module, inputs, trace_joint=is_joint, output_loss_index=index
        )
    # By position: a node may be the gradient of two parameters, and a result a gradient.
    [output] = [node for node in traced.graph.nodes if node.op == "output"]
    outputs = [getattr(one, "name", None) for one in tree_leaves(output.args)]
    written: dict[str, str] = {
        **signature.buffers_to_mutate,
        **signature.parameters_to_mutate,
    }
    trained = [
        name
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if parameter.requires_grad and is_joint
    ]
    num_written = len(outputs) - len(trained) - 1
    found = dict(zip(trained, outputs[num_written + 1 :], strict=True))
    return Exported(
        module=traced,
        states={**signature.inputs_to_parameters, **signature.inputs_to_buffers},
        inputs=tuple(signature.user_inputs),
        loss=str(outputs[num_written]),
        gradients={name: str(node) for name, node in found.items()},
        written={name: node for node, name in written.items()},
        written_inputs=tuple(signature.user_inputs_to_mutate.values()),
    )


def value_of(node: fx.Node) -> Any:
    """What a node returns, without data."""
    return node.meta.get("val")


def is_random(target: Any) -> bool:
    """Whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
