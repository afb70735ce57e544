"""The step of a model as a graph of torch's operators, on tensors without data.

In: a workload and a number of samples. Out: a graph of `torch.fx` without writes, and
the model that it is of. Called by `capture`, which makes our own graph of it.

    aliases and dead nodes     gone
    a tensor of two names      one
    writes to buffers          a copy at the end of the graph
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call

from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.placed.graph import Form
from plimsoll_trainer.placed.origins import SAME, Origin, Origins
from plimsoll_trainer.placed.refusals import (
    ELSE,
    identities,
    refusals,
    require_apart,
    require_in_place,
    require_no_hooks,
)
from plimsoll_trainer.placed.workload import PlacedWorkload, Tensors
from plimsoll_trainer.torch_internals.joint_graph import (
    Exported,
    export_forward,
    export_joint,
    value_of,
)
from plimsoll_trainer.torch_internals.operators import FakeTensorMode, storage_of

copy = torch.ops.aten.copy_.default


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """Graph of a step; values of nodes are tensors without data."""

    graph: fx.Graph
    states: dict[str, fx.Node]
    """Name of a parameter or buffer in checkpoints -> its placeholder."""
    gradients: dict[str, fx.Node]
    inputs: tuple[fx.Node, ...]
    loss: fx.Node
    constants: Mapping[str, Tensor]
    """Target of a node -> tensor with data."""
    origins: Mapping[str, Origin]
    """Name of a node -> module that calls its operator."""


class LossModule(nn.Module):
    """The loss of a model as a function of its tensors, each of which is here once.

    Torch's own export takes a tensor of two names for two, and would add gradients up
    in another order than autograd does.
    """

    def __init__(self, model: nn.Module, workload: PlacedWorkload) -> None:
        """Register the model's tensors under names of their own.

        Raises:
            WorkloadError: two of them lie in one piece of memory, or one has hooks.
        """
        super().__init__()
        self.hidden = [InnerLoss(model, workload)]  # a list hides it from torch
        self.paths: dict[str, str] = {}
        """Name here -> first name in the model."""
        parameters, buffers = (
            dict(model.named_parameters()),
            dict(model.named_buffers()),
        )
        require_apart(parameters | buffers, workload)
        for index, (path, parameter) in enumerate(parameters.items()):
            require_no_hooks(workload.name_of(path), parameter)
            own = f"parameter_{index}"
            self.register_parameter(own, dense_parameter(parameter))
            self.paths[own] = path
            if not parameter.requires_grad:
                self.freeze(own)
        for index, (path, buffer) in enumerate(buffers.items()):
            self.register_buffer(f"buffer_{index}", dense(buffer))
            self.paths[f"buffer_{index}"] = path
        self.names = {own: workload.name_of(path) for own, path in self.paths.items()}
        """Name here -> name in checkpoints."""
        self.module_names = {
            one: workload.module_name_of(path) for path, one in model.named_modules()
        }

    def freeze(self, name: str) -> None:
        """Let a parameter be a buffer, which the model may write to."""
        tensor = self.get_parameter(name).detach()
        delattr(self, name)
        self.register_buffer(name, tensor)

    def forward(self, *tensors: Tensor) -> tuple[Tensor]:
        """Loss of a micro-batch."""
        [inner] = self.hidden
        given = {
            f"model.{path}": getattr(self, own) for own, path in self.paths.items()
        }
        found: tuple[Tensor] = functional_call(inner, given, tensors)
        return found


def dense_parameter(parameter: nn.Parameter) -> nn.Parameter:
    """A parameter, or a copy that has a storage of its own, without gaps."""
    found = dense(parameter)
    if found is parameter:
        return parameter
    return nn.Parameter(found.detach(), requires_grad=parameter.requires_grad)


def dense(tensor: Tensor) -> Tensor:
    """A tensor, or a copy if its storage has anything beside its numbers, each once.

    An expanded tensor has fewer, and a slice more; ranks make new tensors.
    """
    form = Form.of(tensor)
    is_alone = storage_of(tensor)[1].nbytes() == form.num_bytes
    return tensor if form.is_dense and is_alone else tensor.clone()


def apart(tensors: Tensors) -> Tensors:
    """Tensors of a batch, each without gaps in a storage of its own.

    Ranks make new ones, so two that are one in the first step need not be in others.
    """
    found, known = list[Tensor](), set[int]()
    for tensor in map(dense, tensors):
        is_shared = storage_of(tensor)[0] in known
        found.append(tensor.clone() if is_shared else tensor)
        known.add(storage_of(found[-1])[0])
    return tuple(found)


class InnerLoss(nn.Module):
    """A model that returns its loss."""

    def __init__(self, model: nn.Module, workload: PlacedWorkload) -> None:
        """Hold the model."""
        super().__init__()
        self.model, self.workload = model, workload

    def forward(self, *tensors: Tensor) -> tuple[Tensor]:
        """Loss of a micro-batch."""
        before = identities(self.model)
        found: object = self.workload.loss(self.model, tensors)
        require_in_place(before, identities(self.model), self.workload)
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
    with host_memory():  # where constants of the model stay
        samples = apart(workload.batch(0, 0, micro_batch))
        return of_samples(workload, samples, is_joint=is_joint)


def of_samples(workload: PlacedWorkload, samples: Tensors, *, is_joint: bool) -> Traced:
    """Trace a step on samples of which forms alone count."""
    with FakeTensorMode() as mode:
        module = LossModule(workload.built().train(is_joint), workload)
        inputs = tuple(mode.from_tensor(tensor) for tensor in samples)
        origins = Origins(paths=module.module_names)
        with refusals():
            if is_joint:
                freeze_unused(module, inputs)
            export = export_joint if is_joint else export_forward
            with origins.noted():
                exported = export(module, inputs)
        for written in exported.written_inputs:
            place = exported.inputs.index(written)
            raise WorkloadError(
                f"the model writes to {workload.input_name(place)}: let it work on a "
                f"copy, as in x = x.clone(), or {ELSE}"
            )
        found = origins.of(exported.module.graph)
        return tidied(exported, module.names, found)


def freeze_unused(module: LossModule, inputs: Tensors) -> None:
    """Let parameters that the loss does not depend on be as frozen ones."""
    trained = dict(module.named_parameters())
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
        torch.autograd.grad(loss, list(trained.values()), allow_unused=True),
    )
    for name, gradient in zip(trained, found, strict=True):
        if gradient is None:
            module.freeze(name)


def tidied(
    exported: Exported, names: Mapping[str, str], origins: Mapping[str, Origin]
) -> Traced:
    """A graph without aliases, dead nodes and hidden writes; called in its mode."""
    graph = exported.module.graph
    by_name: dict[str, fx.Node] = {node.name: node for node in graph.nodes}
    [output] = graph.find_nodes(op="output")
    states = {names[own]: by_name[node] for node, own in exported.states.items()}
    real: dict[fx.Node, fx.Node] = {
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
        origins=origins,
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
