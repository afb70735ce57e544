"""Parameters that no gradient comes back to, which are frozen in a plan.

    layer 0      linear             its weights require gradients, but learn nothing
    layer 1      x.detach()         lets no gradient through
    layer 2      linear             learns

Torch leaves such a parameter without a gradient, so its optimizer passes over it. Here
gradients are there from the start, as zeros, with which AdamW would let weights decay.
So these parameters are frozen: they have neither gradient nor optimizer state, and no
plan counts any.

In: what each kind of layer returned on tensors without data. Out: the parameters, and
a workload in which they are frozen. Called by `boundaries`, and by the profiler.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from torch import Tensor, fx, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node

from plimsoll_trainer.random_keys import hidden_state
from plimsoll_trainer.torch_internals.operators import is_of_operator
from plimsoll_trainer.workload import Layer, Workload

Names = frozenset[str]
"""Of parameters of a layer."""
OF_EVERY_MODULE = frozenset(vars(nn.Module()))
"""Attributes that torch gives to modules."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Tensors that the gradient of one result of a layer reaches."""

    parameters: Names
    passed: bool
    """Whether it comes back to what was passed to the layer."""
    taken: tuple[bool, ...]
    """The same of each value that it takes."""


@dataclass(frozen=True, slots=True)
class Learning:
    """Parameters that a kind of layer could train, and by which of its results."""

    first_names: Mapping[str, str]
    """Of parameters that require a gradient: by every name in the layer, the first."""
    reaches: tuple[Reach, ...]
    """Of what it passes on, then of each value that it gives."""

    @property
    def parameters(self) -> Names:
        """All that require a gradient."""
        return frozenset(self.first_names.values())


def learning_of(
    layer: nn.Module,
    entries: Sequence[Node | None],
    results: Sequence[Tensor],
    *,
    is_steady: bool = True,
) -> Learning:
    """Find the parameters that a layer could train, in the graph of its forward pass.

    No backward pass runs: in forks of a process that had one, torch refuses another.

    Args:
        layer: that ran.
        entries: where the graphs of what was passed to it and of what it took ended.
        results: what it passes on, then what it gives.
        is_steady: whether it does the same when it runs again; else it may learn all.
    """
    trained = {one: name for name, one in layer.named_parameters() if one.requires_grad}
    names = frozenset(trained.values())

    def reach(result: Tensor) -> Reach:
        nodes = nodes_behind(result, entries)
        if not is_steady or any(map(is_own, nodes - set(entries))):
            inputs = [one is not None for one in entries]
            return Reach(names, inputs[0], tuple(inputs[1:]))
        leaves = {getattr(one, "variable", None) for one in nodes} | {result}
        inputs = [one in nodes for one in entries]
        return Reach(
            parameters=frozenset(n for one, n in trained.items() if one in leaves),
            passed=inputs[0],
            taken=tuple(inputs[1:]),
        )

    every = layer.named_parameters(remove_duplicate=False)
    return Learning(
        first_names={name: trained[one] for name, one in every if one in trained},
        reaches=tuple(map(reach, results)),
    )


def kept_in_python(layer: nn.Module) -> tuple[object, ...]:
    """State outside of tensors that a forward pass may depend on, as counts of calls.

    A layer that changes any of it may do something else when it runs again.
    """
    plain = [
        (path, name, pickled(value))
        for path, module in layer.named_modules()
        for name, value in vars(module).items()
        if name not in OF_EVERY_MODULE
    ]
    return (*hidden_state(), plain)


def pickled(value: object) -> object:
    """A value as bytes, or its identity; unequal before and after a change."""
    if not isinstance(value, Tensor | nn.Module | fx.Graph) and not callable(value):
        with suppress(Exception):  # their classes, which nobody may have to pickle
            return pickle.dumps(value)
    return id(value)


def nodes_behind(result: Tensor, entries: Sequence[Node | None]) -> set[Node]:
    """Nodes that the gradient of a result comes by, up to where the layer begins."""
    waiting, found = [result.grad_fn], set[Node]()
    while waiting:
        node = waiting.pop()
        if node is None or node in found:
            continue
        found.add(node)
        if node not in entries:
            waiting += [before for before, _ in node.next_functions]
    return found


def is_own(node: Node) -> bool:
    """Whether a node is a function of the layer's own, which may reach anything."""
    kind: type = type(node)
    return issubclass(kind, BackwardCFunction) and not is_of_operator(kind)


def unlearned_in(workload: Workload, learning: Sequence[Learning]) -> dict[int, Names]:
    """Parameters that the loss does not depend on, by layer; none of other layers.

    Args:
        workload: layers in order.
        learning: of each layer.
    """
    learned: dict[int, Names] = {}
    comes_back: dict[str, bool] = {}
    is_passed = True  # the last layer's output enters the loss
    for index in reversed(range(len(workload.layers))):
        layer, known = workload.layers[index], learning[index]
        wanted = (is_passed, *(comes_back.get(name, False) for name in layer.gives))
        pairs = zip(known.reaches, wanted, strict=True)
        reaches = [reach for reach, is_wanted in pairs if is_wanted]
        learned[index] = frozenset().union(*(one.parameters for one in reaches))
        is_passed = any(reach.passed for reach in reaches)
        for place, name in enumerate(layer.takes or ()):
            if any(reach.taken[place] for reach in reaches):
                comes_back[name] = True
    tied = learned_by_others(workload, learning, learned)
    found = {
        index: known.parameters - learned[index] - tied.get(index, frozenset())
        for index, known in enumerate(learning)
    }
    return {index: names for index, names in found.items() if names}


def learned_by_others(
    workload: Workload, learning: Sequence[Learning], learned: Mapping[int, Names]
) -> dict[int, Names]:
    """Parameters that some layer learns which has them too, by layer."""
    place_of = {layer.name: index for index, layer in enumerate(workload.layers)}
    found: dict[int, Names] = {}
    for tie in workload.ties:
        indices = [(place_of[layer], name) for layer, name in tie.places]
        places = [(i, learning[i].first_names.get(name, name)) for i, name in indices]
        if any(name in learned[index] for index, name in places):
            for index, name in places:
                found[index] = found.get(index, frozenset()) | {name}
    return found


def in_all(found: Sequence[Mapping[int, Names]]) -> dict[int, Names]:
    """Parameters that occur in each of several findings, by layer."""
    first, *others = found
    common = {
        index: names.intersection(*(one.get(index, frozenset()) for one in others))
        for index, names in first.items()
    }
    return {index: names for index, names in common.items() if names}


@dataclass(frozen=True, slots=True)
class Frozen:
    """Builds a layer, some parameters of which are frozen."""

    factory: Callable[[], nn.Module]
    names: tuple[str, ...]

    def __call__(self) -> nn.Module:
        """Build it."""
        module = self.factory()
        for name in self.names:
            module.get_parameter(name).requires_grad = False
        return module


def with_frozen(workload: Workload, unlearned: Mapping[int, Names]) -> Workload:
    """A workload in which some parameters are frozen, by layer."""
    layers = tuple(
        frozen_in(layer, sorted(unlearned[index])) if index in unlearned else layer
        for index, layer in enumerate(workload.layers)
    )
    return replace(workload, layers=layers)


def frozen_in(layer: Layer, names: Sequence[str]) -> Layer:
    """A layer in which some parameters are frozen; it is of another kind then."""
    digest = hashlib.sha256("\0".join(names).encode()).hexdigest()[:12]
    factory = Frozen(layer.factory, tuple(names))
    return replace(layer, factory=factory, kind=f"{layer.kind}, frozen {digest}")


def listed(workload: Workload, unlearned: Mapping[int, Names], most: int = 3) -> str:
    """Parameters in a message, the first few by name."""
    names: Iterable[str] = (
        f"{workload.layers[index].name}.{name}"
        for index in sorted(unlearned)
        for name in sorted(unlearned[index])
    )
    found = list(names)
    rest = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + rest
