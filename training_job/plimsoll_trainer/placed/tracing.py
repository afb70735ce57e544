"""The step of a model as a graph of torch's operators, on tensors without data.

In: a workload and a number of samples. Out: a graph of `torch.fx` without writes, and
the model that it is of. Called by `capture`, which makes our own graph of it.

    aliases and dead nodes     gone
    a tensor of two names      one
    writes to buffers          a copy at the end of the graph
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.func import functional_call

from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.placed.workload import ModuleLoss, PlacedWorkload, Tensors
from plimsoll_trainer.torch_internals.joint_graph import (
    Exported,
    export_forward,
    export_joint,
    value_of,
)
from plimsoll_trainer.torch_internals.operators import (
    NEEDS_NUMBERS,
    FakeTensorMode,
    storage_of,
)

SAME = (torch.ops.aten.alias.default, torch.ops.aten.detach.default)
"""Operators that return what they are given."""
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
    """The loss of a model as a function of its tensors, each of which is here once.

    Torch's own export takes a tensor of two names for two, and would add gradients up
    in another order than autograd does.
    """

    def __init__(self, model: nn.Module, loss: ModuleLoss) -> None:
        """Register the model's tensors under names of their own.

        Raises:
            WorkloadError: two of them lie in one piece of memory.
        """
        super().__init__()
        self.hidden = [InnerLoss(model, loss)]  # a list hides it from torch
        self.names: dict[str, str] = {}
        """Name here -> first name in the model."""
        for index, (name, parameter) in enumerate(model.named_parameters()):
            self.register_parameter(f"parameter_{index}", parameter)
            self.names[f"parameter_{index}"] = name
        for index, (name, buffer) in enumerate(model.named_buffers()):
            self.register_buffer(f"buffer_{index}", buffer)
            self.names[f"buffer_{index}"] = name
        self._check_apart()

    def _check_apart(self) -> None:
        """Refuse tensors that are parts of one."""
        lying: dict[int, str] = {}
        for own, name in self.names.items():
            key, _ = storage_of(getattr(self, own))
            if key in lying:
                raise WorkloadError(
                    f"{name} and {lying[key]} are parts of one tensor, which may not "
                    "be on two devices: make a copy of one, or one parameter of both"
                )
            lying[key] = name

    def forward(self, *tensors: Tensor) -> tuple[Tensor]:
        """Loss of a micro-batch."""
        [inner] = self.hidden
        given = {
            f"model.{name}": getattr(self, own) for own, name in self.names.items()
        }
        found: tuple[Tensor] = functional_call(inner, given, tensors)
        return found


class InnerLoss(nn.Module):
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
        module = LossModule(workload.built().train(is_joint), workload.loss)
        inputs = tuple(mode.from_tensor(tensor) for tensor in samples)
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
        return tidied(exported, module.names)


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
    found = cast(
        "Sequence[Tensor | None]",  # what torch says holds where all are used
        torch.autograd.grad(loss, trained, allow_unused=True),
    )
    for parameter, gradient in zip(trained, found, strict=True):
        if gradient is None:
            parameter.requires_grad = False


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
        raise WorkloadError(
            f"the model cannot be captured: {located(error)}"
        ) from error
    after = random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - theirs
    if after != before:
        raise WorkloadError(
            "the model draws random numbers from Python or numpy, which would be the "
            "same in every step once it is captured: draw them by torch"
        )


def tidied(exported: Exported, names: Mapping[str, str]) -> Traced:
    """A graph without aliases, dead nodes and hidden writes; called in its mode."""
    graph = exported.module.graph
    by_name = {node.name: node for node in graph.nodes}
    [output] = graph.find_nodes(op="output")
    states = {names[own]: by_name[node] for node, own in exported.states.items()}
    real = {
        node: real_of(node) for node in by_name.values() if node.target in SAME
    }  # before they are taken out
    gradients = {
        names[own]: real.get(by_name[node], by_name[node])
        for own, node in exported.gradients.items()
    }
    loss = real.get(by_name[exported.loss], by_name[exported.loss])
    with graph.inserting_before(output):
        written = [
            call(graph, copy, states[names[own]], by_name[node])
            for own, node in exported.written.items()
        ]
    for node, source in real.items():
        node.replace_all_uses_with(source)
    output.args = ((loss, *gradients.values(), *written),)
    graph.eliminate_dead_code(lambda node: node.op in {"placeholder", "output"})
    constants = {
        str(node.target): getattr(exported.module, str(node.target))
        for node in graph.find_nodes(op="get_attr")
    }
    return Traced(
        graph=graph,
        states=states,
        gradients=gradients,
        inputs=tuple(by_name[name] for name in exported.inputs),
        loss=loss,
        constants=constants,
    )


def real_of(node: fx.Node) -> fx.Node:
    """The node whose value an alias has."""
    while node.target in SAME:
        source = node.args[0]
        assert isinstance(source, fx.Node)  # noqa: S101 - by their schemas
        node = source
    return node


def call(graph: fx.Graph, target: Callable[..., Any], *args: fx.Node) -> fx.Node:
    """A new node with the value that its operator has."""
    node = graph.call_function(target, args)
    node.meta["val"] = target(*map(value_of, args))
    return node
