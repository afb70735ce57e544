"""Captures one step of a model: its operators, and where their tensors lie.

In: a workload and the number of samples of a micro-batch. Out: a `CapturedGraph`.
Called on every rank before it trains, and by whoever profiles; the same code and torch
give the same graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.placed.graph import CapturedGraph, Form, Kind, Node, State, Value
from plimsoll_trainer.placed.tracing import Traced, copy, traced
from plimsoll_trainer.placed.workload import PlacedWorkload
from plimsoll_trainer.torch_internals.graphs import draws
from plimsoll_trainer.torch_internals.joint_graph import is_operator, value_of
from plimsoll_trainer.torch_internals.operators import storage_of, tree_iter

LONGEST = 256
"""Letters of an operator in words; of a longer one the end is a digest."""


def capture(workload: PlacedWorkload, micro_batch: int) -> CapturedGraph:
    """Loss and gradients of a micro-batch.

    Raises:
        WorkloadError: the model cannot be captured, and why.
    """
    return converted(traced(workload, micro_batch, is_joint=True))


def capture_evaluation(workload: PlacedWorkload, micro_batch: int) -> CapturedGraph:
    """Loss of a micro-batch, of the model as it evaluates.

    Raises:
        WorkloadError: the model cannot be captured, and why.
    """
    return converted(traced(workload, micro_batch, is_joint=False))


def converted(trace: Traced) -> CapturedGraph:
    """Graph of a trace."""
    states = {node: name for name, node in trace.states.items()}
    unused = {node for node in trace.inputs if not node.users}
    chosen = [
        node for node in trace.graph.nodes if node.op != "output" and node not in unused
    ]
    number = {node: at for at, node in enumerate(chosen)}
    storages = Storages(chosen)
    readers: dict[int, list[int]] = {}
    nodes: list[Node] = []
    for node in chosen:
        found = of_node(node, number, storages, trace, states)
        waits: tuple[int, ...] = ()
        if node.target is copy:
            [written] = storages.of(node)
            others = readers.get(written, [])
            waits = tuple(dict.fromkeys(n for n in others if n not in found.inputs))
        nodes.append(replace(found, waits=waits))
        for source in found.inputs:
            for storage in nodes[source].storages:
                readers.setdefault(storage, []).append(number[node])
    return CapturedGraph(
        nodes=tuple(nodes),
        storage_bytes=tuple(storages.num_bytes),
        states=tuple(
            State(
                name=name,
                node=number[node],
                gradient=number.get(trace.gradients[name])
                if name in trace.gradients
                else None,
            )
            for name, node in trace.states.items()
        ),
        loss=number[trace.loss],
        inputs=tuple(number.get(node, -1) for node in trace.inputs),
    )


class Storages:
    """Numbers of the storages behind values, as they first occur."""

    def __init__(self, nodes: list[fx.Node]) -> None:
        """Number them; values keep them alive as long as this is used."""
        self._number: dict[int, int] = {}
        self.num_bytes: list[int] = []
        for node in nodes:
            for tensor in tensors_of(node):
                key, storage = storage_of(tensor)
                if key not in self._number:
                    self._number[key] = len(self._number)
                    self.num_bytes.append(storage.nbytes())

    def of(self, node: fx.Node) -> tuple[int, ...]:
        """Storages that the value of a node lies in, each once."""
        keys = (storage_of(tensor)[0] for tensor in tensors_of(node))
        return tuple(dict.fromkeys(self._number[key] for key in keys))


def tensors_of(node: fx.Node) -> Iterator[Tensor]:
    """Yield the tensors of a node's value."""
    for one in tree_iter(value_of(node)):
        if isinstance(one, Tensor):
            yield one


def of_node(
    node: fx.Node,
    number: Mapping[fx.Node, int],
    storages: Storages,
    trace: Traced,
    states: Mapping[fx.Node, str],
) -> Node:
    """One node, as it is without what it waits for.

    Raises:
        WorkloadError: it cannot be run on another device, or with other numbers.
    """
    value = value_of(node)
    leaves = value if isinstance(value, tuple | list) else (value,)
    forms = tuple(Form.of(one) if isinstance(one, Tensor) else None for one in leaves)
    kind = kind_of(node, states)
    name = name_of(node, states, trace)
    constant = trace.constants.get(str(node.target)) if kind is Kind.CONSTANT else None
    require_runnable(node, name, kind, forms, constant)
    return Node(
        name=name,
        kind=kind,
        operator=text_of(node, kind, forms, constant),
        target=str(node.target) if kind is Kind.CALL else "",
        args=numbered(node.args, number),
        kwargs=numbered(node.kwargs, number),
        inputs=tuple(dict.fromkeys(number[one] for one in inputs_of(node))),
        forms=forms,
        storages=storages.of(node),
        is_random=draws(node.target),
        constant=constant,
    )


def kind_of(node: fx.Node, states: Mapping[fx.Node, str]) -> Kind:
    """Kind of a node."""
    if node in states:
        return Kind.STATE
    if node.op == "placeholder":
        return Kind.INPUT
    if node.op == "get_attr":
        return Kind.CONSTANT
    is_part = getattr(node.target, "__module__", "") == "_operator"
    return Kind.PART if is_part else Kind.CALL


def name_of(node: fx.Node, states: Mapping[fx.Node, str], trace: Traced) -> str:
    """Name of a node: `state scale`, `batch.0`, `encoder.linear1/backward/mm_3`."""
    if node in states:
        return f"state {states[node]}"  # no other name has a space
    if node in trace.inputs:
        return f"batch.{trace.inputs.index(node)}"
    origin = trace.origins.get(node.name)
    if origin is None:
        return node.name
    parts = (origin.module, "backward" if origin.is_backward else "", node.name)
    return "/".join(filter(None, parts))


def require_runnable(
    node: fx.Node, name: str, kind: Kind, forms: tuple[Form | None, ...], constant: Any
) -> None:
    """Raise `WorkloadError` if a node cannot be run again elsewhere."""
    if kind is Kind.CALL and not is_operator(node.target):
        raise WorkloadError(
            f"{name} ({node.target}) is no operator that can be placed: write it with "
            "operators of torch, or register it by torch.library"
        )
    if any(one.is_conj() or one.is_neg() for one in tensors_of(node)):
        raise WorkloadError(
            f"{name} ({node.target}) is conjugated or negated where it is read, which "
            "is not sent: call resolve_conj() or resolve_neg() on it, or train it as a "
            "chain of layers (engine plimsoll)"
        )
    if "mkldnn_rnn" in str(node.target):
        raise WorkloadError(
            f"{name} ({node.target}) keeps what cannot be made up to measure its "
            "backward pass, as nn.LSTM does on a CPU: use another, such as nn.GRU"
        )
    if any(isinstance(one, torch.Generator) for one in (constant, *flat(node))):
        user = next(iter(node.users)) if kind is Kind.CONSTANT else node
        raise WorkloadError(
            f"{user.target} draws from a generator of its own, so its numbers would "
            "depend on what ran before on the same device: leave the generator out"
        )
    if all(form is None for form in forms):
        raise WorkloadError(
            f"{name} ({node.target}) returns no tensor, so nothing says when it is to "
            "run: leave it out while the model is captured"
        )


def flat(node: fx.Node) -> Iterator[Any]:
    """Yield all arguments of a node."""
    yield from tree_iter((node.args, dict(node.kwargs)))


def inputs_of(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the nodes among a node's arguments, in order."""
    for one in flat(node):
        if isinstance(one, fx.Node):
            yield one


def numbered(argument: Any, number: Mapping[fx.Node, int]) -> Any:
    """An argument with `Value`s in the place of nodes."""
    match argument:
        case fx.Node():
            return Value(number[argument])
        case tuple() | list():
            return tuple(numbered(one, number) for one in argument)
        case dict():
            return {name: numbered(one, number) for name, one in argument.items()}
        case _:
            return argument


def text_of(
    node: fx.Node, kind: Kind, forms: tuple[Form | None, ...], constant: Tensor | None
) -> str:
    """Operator and arguments in words: inputs by number, shape and type."""
    results = ", ".join("nothing" if form is None else form.text for form in forms)
    if kind is Kind.CALL or kind is Kind.PART:
        seen: dict[fx.Node, int] = {}
        arguments = [words(one, seen) for one in node.args]
        arguments += [f"{name}={words(one, seen)}" for name, one in node.kwargs.items()]
        target = node.target if kind is Kind.CALL else "part"
        text = f"{target}({', '.join(arguments)})"
    elif constant is not None:
        text = f"constant {results} {digest(repr(constant.tolist()))}"
    else:
        text = f"{kind} {results}"
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 20]} ... {digest(text)}"


def words(argument: Any, seen: dict[fx.Node, int]) -> str:
    """An argument in words."""
    match argument:
        case fx.Node():
            place = seen.setdefault(argument, len(seen))
            value = value_of(argument)
            form = f" {Form.of(value).text}" if isinstance(value, Tensor) else ""
            return f"%{place}{form}"
        case tuple() | list():
            return f"[{', '.join(words(one, seen) for one in argument)}]"
        case _:
            return str(argument)


def digest(text: str) -> str:
    """A few letters, others for another text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
