"""A workload from a model that `torch.fx` can trace: its code says the order of parts.

    conv1 -> bn1 -> relu -> maxpool -> layer1.0 -> ... -> avgpool -> flatten -> fc

In: a model with its values, called with one tensor. Out: a workload as
`from_sequential` makes it. The model is traced with its modules closed, and cut where
one value alone is still needed. Lists of modules are opened while that leaves them in
parts that pass one value on; blocks with a sum around them are not. Parts without
parameters, such as `flatten`, go with what comes before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from plimsoll_trainer.adapters.sequential import from_sequential
from plimsoll_trainer.errors import WorkloadError, described
from plimsoll_trainer.workload import Workload

FEWEST = 2
"""Layers of a chain."""


def from_traced(
    model: nn.Module, *, never_recomputed: Collection[str] = (), **fields: Any
) -> Workload:
    """Build a workload from a model that exists, with the values that it has.

    Args:
        model: maps one tensor to one; each process must be able to hold it.
        never_recomputed: names of layers whose forward pass must not run twice.
        fields: the other fields of `Workload`; loss, batch and optimizer are required.

    Raises:
        WorkloadError: it cannot be traced, or is not a chain.
    """
    layers = nn.Sequential(OrderedDict(layers_of(model)))
    return from_sequential(layers, never_recomputed=never_recomputed, **fields)


def layers_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Layers of a model in order, by name.

    Raises:
        WorkloadError: it cannot be traced, or is not a chain.
    """
    parts = merged(model, parts_of(traced(model, openings(model))))
    if len(parts) < FEWEST:
        raise WorkloadError(
            f"{type(model).__name__} cannot be cut where one tensor is passed on: give "
            "layers as a list (plimsoll_trainer.adapters.sequential.from_sequential)"
        )
    names = [name_of(part).replace(".", "_") for part in parts]
    taken: dict[str, int] = {}
    for at, name in enumerate(names):
        taken[name] = taken.get(name, 0) + 1
        names[at] = name if taken[name] == 1 else f"{name}_{taken[name]}"
    modules = (module_of(model, part) for part in parts)
    return list(zip(names, modules, strict=True))


class PartlyOpen(fx.Tracer):
    """Traces through some modules, and leaves the others closed."""

    def __init__(self, opened: Collection[str]) -> None:
        """Take the paths of those to go through."""
        super().__init__()
        self._opened = opened

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module stays closed."""
        del m
        return module_qualified_name not in self._opened


def traced(model: nn.Module, opened: Collection[str]) -> fx.Graph:
    """Graph of a model with some modules opened.

    Raises:
        WorkloadError: it cannot be traced.
    """
    try:
        return PartlyOpen(opened).trace(model)
    except Exception as error:
        raise WorkloadError(
            f"{type(model).__name__} cannot be traced by torch.fx: {described(error)}; "
            "give layers as a list "
            "(plimsoll_trainer.adapters.sequential.from_sequential)"
        ) from error


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that turn one value into one, in order."""

    nodes: tuple[fx.Node, ...]
    given: fx.Node
    """The value that comes in."""

    @property
    def modules(self) -> list[str]:
        """Paths of the modules that it calls."""
        return [str(node.target) for node in self.nodes if node.op == "call_module"]

    @property
    def tensors(self) -> list[str]:
        """Paths of parameters and buffers that it uses beside modules."""
        return [str(node.target) for node in self.nodes if node.op == "get_attr"]


def parts_of(graph: fx.Graph) -> list[Part]:
    """Smallest parts of a graph that pass one value on."""
    given, *nodes, end = ordered(graph)
    place = {node: at for at, node in enumerate((*nodes, end))}
    last_use = {
        node: max((place[user] for user in node.users), default=-1)
        for node in (given, *nodes)
    }
    parts: list[Part] = []
    begun = 0
    needed = {given}
    for at, node in enumerate(nodes):
        if node.op != "get_attr":
            needed.add(node)
        needed = {one for one in needed if last_use[one] > at}
        # A tensor of the model is fetched where it is used first.
        if needed == {node} and node.op != "get_attr":
            part = tuple(nodes[begun : at + 1])
            parts.append(Part(part, given))
            given, begun = node, at + 1
    return parts


def ordered(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield the nodes of a graph, tensors of the model just before their first use."""
    known = set()
    for node in graph.nodes:
        if node.op == "get_attr":
            continue
        for before in node.all_input_nodes:
            if before.op == "get_attr" and before not in known:
                known.add(before)
                yield before
        yield node


def openings(model: nn.Module) -> set[str]:
    """Paths of the modules to open, so that each of their parts passes one value on.

    Of a class of modules with code of its own all are opened, or none.
    """
    opened: set[str] = set()
    closed: set[type[nn.Module]] = set()
    while True:
        found: list[str] = []
        for part in parts_of(traced(model, opened)):
            for path in part.modules:
                module = model.get_submodule(path)
                if type(module) in closed or not is_of_lists(module):
                    continue
                if falls_apart(model, opened, path):
                    found.append(path)
                else:
                    closed.add(type(module))
        closed -= {nn.Sequential}
        new = {path for path in found if type(model.get_submodule(path)) not in closed}
        if not new - opened:
            return opened
        opened |= new


def falls_apart(model: nn.Module, opened: Collection[str], path: str) -> bool:
    """Whether a module, once opened, is parts with one module each."""
    try:
        parts = parts_of(traced(model, {*opened, path}))
    except WorkloadError:
        return False
    inside = [sum(one.startswith(f"{path}.") for one in part.modules) for part in parts]
    return sum(inside) > 1 and max(inside) == 1


def is_of_lists(module: nn.Module) -> bool:
    """Whether a module is a list, or holds one.

    A subclass of `nn.Sequential` of mere operations, such as a convolution with its
    norm, is one thing.
    """
    if type(module) is nn.Sequential:
        return len(module) > 1
    if isinstance(module, nn.Sequential):
        is_list = type(module).forward is nn.Sequential.forward
        return is_list and any(list(child.children()) for child in module)
    return any(
        type(child) in (nn.Sequential, nn.ModuleList) for child in module.children()
    )


def merged(model: nn.Module, parts: Sequence[Part]) -> list[Part]:
    """Parts with parameters, each with those behind it that have none."""
    found: list[Part] = []
    for part in parts:
        if found and not (
            has_parameters(model, part) and has_parameters(model, found[0])
        ):
            found[-1] = Part(found[-1].nodes + part.nodes, found[-1].given)
        else:
            found.append(part)
    return found


def has_parameters(model: nn.Module, part: Part) -> bool:
    """Whether a part uses parameters."""
    inside = (model.get_submodule(path).parameters() for path in part.modules)
    known = dict(model.named_parameters(remove_duplicate=False))
    return any(next(one, None) is not None for one in inside) or any(
        path in known for path in part.tensors
    )


def name_of(part: Part) -> str:
    """Name of a part: that of its first module, tensor or operation."""
    return [*part.modules, *part.tensors, part.nodes[0].name][0]


def module_of(model: nn.Module, part: Part) -> nn.Module:
    """A part as a module, with the model's own modules and tensors in it."""
    given = part.given
    for node in part.nodes:
        if node.op != "call_module" or node.args != (given,) or node.kwargs:
            break
        given = node
    else:
        modules = [model.get_submodule(path) for path in part.modules]
        return modules[0] if len(modules) == 1 else nn.Sequential(*modules)
    graph = fx.Graph()
    values = {part.given: graph.placeholder("x")}
    for node in part.nodes:
        values[node] = graph.node_copy(node, values.__getitem__)
    graph.output(values[part.nodes[-1]])
    return fx.GraphModule(model, graph)
