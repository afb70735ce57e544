"""The step of a model as a graph of torch's operators, on tensors without data.

In: a workload and a number of samples. Out: a graph of `torch.fx` without writes, and
the model that it is of. Called by `capture`, which makes our own graph of it.

    aliases and dead nodes     gone
    a tensor of two names      once, with the sum of its gradients
    writes to buffers          a copy at the end of the graph
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, fx, nn

from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.placed.workload import ModuleLoss, PlacedWorkload, Tensors
from plimsoll_trainer.torch_internals.joint_graph import (
    Exported,
    export_forward,
    export_joint,
    value_of,
)
from plimsoll_trainer.torch_internals.operators import NEEDS_NUMBERS, FakeTensorMode

MODEL = "model."
"""Before the names of the model's tensors, in the module that returns the loss."""
SAME = (torch.ops.aten.alias.default, torch.ops.aten.detach.default)
"""Operators that return what they are given."""
add = torch.ops.aten.add.Tensor
copy = torch.ops.aten.copy_.default


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """Graph of a step; values of nodes are tensors without data."""

    graph: fx.Graph
    states: dict[str, fx.Node]
    """First name of a parameter or buffer -> its placeholder."""
    gradients: dict[str, fx.Node]
    inputs: tuple[fx.Node, ...]
    loss: fx.Node
    constants: Mapping[str, Tensor]
    """Target of a node -> tensor with data."""


class LossModule(nn.Module):
    """A model that returns its loss."""

    def __init__(self, model: nn.Module, loss: ModuleLoss) -> None:
        """Hold the model."""
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *tensors: Tensor) -> tuple[Tensor]:
        """Loss of a micro-batch."""
        found: object = self.loss(self.model, tensors)
        if not isinstance(found, Tensor) or found.ndim:
            shape = list(found.shape) if isinstance(found, Tensor) else ""
            raise WorkloadError(
                f"the loss gives {type(found).__name__} {shape}, but a scalar is "
                "needed: return the mean over the samples"
            )
        return (found,)


def traced(workload: PlacedWorkload, micro_batch: int, *, is_joint: bool) -> Traced:
    """Trace a step, or the loss alone of a model that evaluates.

    Raises:
        WorkloadError: the model cannot be built, or what it does depends on numbers.
    """
    samples = workload.batch(0, 0, micro_batch)
    with FakeTensorMode() as mode:
        module = LossModule(workload.built(), workload.loss).train(is_joint)
        inputs = tuple(mode.from_tensor(tensor) for tensor in samples)
        first = first_names(module)
        with refusals():
            if is_joint:
                freeze_unused(module, inputs)
            export = export_joint if is_joint else export_forward
            exported = export(module, inputs)
        if exported.written_inputs:
            raise WorkloadError(
                f"the model writes to its input {exported.written_inputs[0]}: let it "
                "work on a copy"
            )
        return tidied(exported, first)


def first_names(module: nn.Module) -> dict[str, str]:
    """Every name of a tensor of the module -> the first name of the same tensor.

    Raises:
        WorkloadError: two tensors lie in one piece of memory.
    """
    found: dict[int, str] = {}
    lying: dict[int, str] = {}
    names: dict[str, str] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        names[name] = found.setdefault(id(tensor), name)
        key = hash(tensor.untyped_storage())
        if lying.setdefault(key, names[name]) != names[name]:
            raise WorkloadError(
                f"{name} and {lying[key]} are parts of one tensor, which may not be "
                "on two devices: make a copy of one, or one parameter of both"
            )
    return names


def freeze_unused(module: nn.Module, inputs: Tensors) -> None:
    """Let parameters that the loss does not depend on be as frozen ones."""
    trained = [p for p in module.parameters() if p.requires_grad]
    if not trained:
        raise WorkloadError("no parameter of the model is trained: unfreeze some")
    [loss] = module(*inputs)
    if not loss.requires_grad:
        raise WorkloadError(
            "the loss does not depend on any parameter that is trained: look for a "
            "detach() or no_grad() on its way"
        )
    found = torch.autograd.grad(loss, trained, allow_unused=True)
    for parameter, gradient in zip(trained, found, strict=True):
        if gradient is None:
            parameter.requires_grad_(requires_grad=False)


@contextmanager
def refusals() -> Iterator[None]:
    """Within it, a model is traced.

    Raises:
        WorkloadError: which operators run depends on numbers, or on random ones of
            Python or numpy; or it does not run at all.
    """
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - theirs
    try:
        yield
    except WorkloadError:
        raise
    except NEEDS_NUMBERS as error:
        raise WorkloadError(
            f"the model asks for numbers while it is captured ({located(error)}): what "
            "runs may not depend on them, so use torch.where or fixed shapes there, or "
            "train it as a chain of layers"
        ) from error
    except Exception as error:
        raise WorkloadError(f"the model cannot be captured: {located(error)}") from error
    after = random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - theirs
    if before != after:
        raise WorkloadError(
            "the model draws random numbers from Python or numpy, which would be the "
            "same in every step once it is captured: draw them by torch"
        )


def tidied(exported: Exported, first: Mapping[str, str]) -> Traced:
    """A graph in which every tensor of the model is one node; called in its mode."""
    graph = exported.module.graph
    by_name = {node.name: node for node in graph.nodes}
    [output] = graph.find_nodes(op="output")
    states: dict[str, fx.Node] = {}
    for placeholder, name in exported.states.items():
        node = by_name[placeholder]
        if states.setdefault(first[name], node) is not node:
            node.replace_all_uses_with(states[first[name]])
            graph.erase_node(node)
    results = Results(
        loss=by_name[exported.loss],
        gradients={name: by_name[node] for name, node in exported.gradients.items()},
        written={first[name]: by_name[node] for name, node in exported.written.items()},
    )
    for node in list(graph.nodes):
        if node.target in SAME:
            results = results.replaced(node, node.args[0])
            node.replace_all_uses_with(node.args[0])
    gradients = summed(graph, output, results.gradients, first)
    with graph.inserting_before(output):
        for name, value in results.written.items():
            call(graph, copy, states[name], value)
    kept = (results.loss, *gradients.values(), *graph.find_nodes(
        op="call_function", target=copy
    ))
    output.args = (kept,)
    graph.eliminate_dead_code(lambda node: node.op in {"placeholder", "output"})
    constants = {
        str(node.target): getattr(exported.module, str(node.target))
        for node in graph.find_nodes(op="get_attr")
    }
    return Traced(
        graph=graph,
        states={name.removeprefix(MODEL): node for name, node in states.items()},
        gradients={name.removeprefix(MODEL): node for name, node in gradients.items()},
        inputs=tuple(by_name[name] for name in exported.inputs),
        loss=results.loss,
        constants=constants,
    )


class Results(NamedTuple):
    """Nodes that a step is run for."""

    loss: fx.Node
    gradients: dict[str, fx.Node]
    written: dict[str, fx.Node]

    def replaced(self, node: fx.Node, other: Any) -> Results:
        """The same with another node in the place of one."""

        def of(found: fx.Node) -> Any:
            return other if found is node else found

        return Results(
            loss=of(self.loss),
            gradients={name: of(one) for name, one in self.gradients.items()},
            written={name: of(one) for name, one in self.written.items()},
        )


def summed(
    graph: fx.Graph,
    output: fx.Node,
    gradients: Mapping[str, fx.Node],
    first: Mapping[str, str],
) -> dict[str, fx.Node]:
    """Gradient of each tensor by its first name, added up over its names.

    In the order in which they are computed, as autograd adds them.
    """
    parts: dict[str, list[fx.Node]] = {}
    for name, node in gradients.items():
        parts.setdefault(first[name], []).append(node)
    place = {node: at for at, node in enumerate(graph.nodes)}
    found: dict[str, fx.Node] = {}
    for name, nodes in parts.items():
        total, *others = sorted(nodes, key=place.__getitem__)
        for node in others:
            with graph.inserting_before(output):
                total = call(graph, add, total, node)
        found[name] = total
    return found


def call(graph: fx.Graph, target: Callable[..., Any], *args: fx.Node) -> fx.Node:
    """A new node with the value that its operator has."""
    node = graph.call_function(target, args)
    node.meta["val"] = target(*map(value_of, args))
    return node
