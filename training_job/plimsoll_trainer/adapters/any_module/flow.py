"""Facts about the values of a graph: what they follow from, and whose memory they have.

In: a `Capture`. Out: a `Flow`: the operators that a chain runs once each, in order, and
what each layer may compute again by itself.

    free    follows from constants and the number of samples alone, such as a mask
    weight  follows from parameters, but from no input: computed where it is used first
    value   follows from an input, draws random numbers, or is written in place
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from plimsoll_trainer.adapters.any_module.capture import Capture
from plimsoll_trainer.adapters.any_module.refusals import frames_of, place_in
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.graphs import (
    BATCH_NORMS,
    GRADIENT_SWITCH,
    STATISTICS,
    arguments_of,
    aten,
    draws,
    given_back,
    shared_by,
    written_by,
)

SURE_VIEWS = (
    aten.detach.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.transpose.int,
    aten.unsqueeze.default,
    aten.view.default,
)
"""Others, such as `reshape` and `to`, may give a copy."""
CHECKS = ("_assert", "sym_constrain_range")
"""How the names of operators begin that only check what export has seen."""
GIVES_BACK = (aten.dropout.default, aten.feature_dropout.default)
"""They may give back what they take, which their schema does not say."""


@dataclass(frozen=True, eq=False, slots=True)
class Flow:
    """What a chain runs, and how values hang together."""

    capture: Capture
    order: tuple[fx.Node, ...]
    """What is run once, all but free values, in the order in which it runs."""
    free: frozenset[fx.Node]
    weights: frozenset[fx.Node]
    """Values that follow from parameters, and from no input."""
    counts: Mapping[fx.Node, Any]
    """Whole numbers that follow from the number of samples, as expressions."""
    memory: Mapping[fx.Node, int]
    """Key of the memory that a value has; views have that of what they view."""
    writes: Mapping[int, tuple[fx.Node, ...]]
    """Operators that write to a memory, in order."""
    trained: frozenset[fx.Node]
    """Values that a gradient comes back for."""
    owned_memory: frozenset[int]
    """Keys of the memory of the module's own tensors."""

    def is_view(self, node: fx.Node) -> bool:
        """Whether a value is a view that nothing is written through."""
        return bool(shared(node)) and self.memory[node] not in self.writes

    def written_buffers(self, node: fx.Node) -> list[fx.Node]:
        """Tensors of the module that an operator writes to."""
        origins = map(origin_of, written(node))
        return [one for one in origins if one in self.capture.owned]


def flow_of(capture: Capture) -> Flow:
    """Read a graph.

    Raises:
        WorkloadError: it writes to a parameter.
    """
    nodes = alive(capture)
    memory = memory_of(nodes)
    writes: dict[int, list[fx.Node]] = defaultdict(list)
    for node in nodes:
        for key in {memory[one] for one in written(node)}:
            writes[key].append(node)
        check_written(capture, node)
        check_inner(capture, node)
    counts = counts_of(capture, nodes)
    free = free_values(capture, nodes, counts, memory, writes)
    weights = weight_values(capture, nodes, free, memory, writes)
    return Flow(
        capture=capture,
        order=tuple(
            in_order(
                nodes, free | counts.keys(), weights | set(views(nodes, memory, writes))
            )
        ),
        free=frozenset(free),
        weights=frozenset(weights),
        counts=counts,
        memory=memory,
        writes={key: tuple(each) for key, each in writes.items()},
        trained=frozenset(trained_values(capture, nodes)),
        owned_memory=frozenset(memory[one] for one in capture.owned),
    )


def alive(capture: Capture) -> list[fx.Node]:
    """Nodes that the output or something written depends on, in order."""
    needed = {capture.output}
    nodes = [
        node
        for node in capture.graph.nodes
        if node.op != "output" and not is_check(node)
    ]
    kept = []
    for node in reversed(nodes):
        is_tensor = node.op in {"placeholder", "get_attr"}
        if node in needed or is_tensor or written(node):
            needed.update(node.all_input_nodes)
            kept.append(node)
    return kept[::-1]


def is_check(node: fx.Node) -> bool:
    """Whether an operator only checks something."""
    name = getattr(node.target, "__name__", "")
    return node.op == "call_function" and name.startswith(CHECKS)


def written(node: fx.Node) -> list[fx.Node]:
    """Values that an operator writes to."""
    if node.op != "call_function":
        return []
    names: set[str] = set(written_by(node.target))
    given = arguments_of(node.target, node.args, node.kwargs)
    if node.target in BATCH_NORMS and (
        given.get("training") is True or given.get("use_input_stats") is True
    ):
        names.update(STATISTICS)
    if node.target is aten.detach_.default:
        names.clear()  # it changes what autograd follows, no number
    return [one for name in names for one in nodes_in(given.get(name))]


def nodes_in(tree: Any) -> Iterator[fx.Node]:
    """Yield the nodes of an argument."""
    if isinstance(tree, fx.Node):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from nodes_in(one)


def check_written(capture: Capture, node: fx.Node) -> None:
    """Refuse to write to a parameter.

    Raises:
        WorkloadError: the operator does.
    """
    for one in map(origin_of, written(node)):
        if one in capture.owned and capture.owned[one].is_trained:
            raise WorkloadError(
                f"the forward pass writes to parameter {capture.owned[one].name!r} by "
                f"{node.target}{place_in(frames_of(node))}: only the optimizer may, so "
                "make it a buffer"
            )


def origin_of(node: fx.Node) -> fx.Node:
    """The tensor that a value is a view of for sure, or that it was written to."""
    before = given_back(node.target, node.args, node.kwargs)
    if node.target in SURE_VIEWS:
        before = node.args[0]
    return origin_of(before) if isinstance(before, fx.Node) else node


def check_inner(capture: Capture, node: fx.Node) -> None:
    """Refuse a graph inside of the graph that changes what is outside, or draws.

    Raises:
        WorkloadError: the node is one.
    """
    if node.op != "get_attr":
        return
    inner = list(capture.root.get_submodule(str(node.target)).graph.nodes)  # type: ignore[union-attr,arg-type]
    inner = [one for one in inner if one.op != "output"]
    memory = memory_of(inner)
    given = {memory[one] for one in inner if one.op == "placeholder"}
    for one in inner:
        if draws(one.target) or any(memory[each] in given for each in written(one)):
            raise WorkloadError(
                f"{one.target} within torch.autocast{place_in(frames_of(one))} writes "
                "to what is outside, or draws random numbers: move it out of that block"
            )


def memory_of(nodes: list[fx.Node]) -> dict[fx.Node, int]:
    """Key of the memory of each value; views have that of what they view."""
    found: dict[fx.Node, int] = {}
    merged: dict[int, int] = {}

    def key_of(node: fx.Node) -> int:
        key = found[node]
        while key in merged:
            key = merged[key]
        return key

    for place, node in enumerate(nodes):
        found[node] = place
        for one in shared(node):
            if (other := key_of(one)) != place:
                merged[max(other, key_of(node))] = min(other, key_of(node))
    return {node: key_of(node) for node in nodes}


def shared(node: fx.Node) -> list[fx.Node]:
    """Values whose memory the result of an operator may share."""
    if node.op != "call_function":
        return []
    if not hasattr(node.target, "_schema"):  # an element of several results
        is_element = getattr(node.target, "__name__", "") == "getitem"
        return list(nodes_in(node.args[0])) if is_element else []
    given = arguments_of(node.target, node.args, node.kwargs)
    names = set(shared_by(node.target))
    if node.target in GIVES_BACK:
        names.add("input")
    return [one for name in names for one in nodes_in(given.get(name))]


def counts_of(capture: Capture, nodes: list[fx.Node]) -> dict[fx.Node, Any]:
    """Whole numbers that follow from the number of samples alone."""
    found = {}
    for node in nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            expression = value.node.expr
            if expression.free_symbols <= {capture.samples}:
                found[node] = expression
    return found


def free_values(
    capture: Capture,
    nodes: list[fx.Node],
    counts: Mapping[fx.Node, Any],
    memory: Mapping[fx.Node, int],
    writes: Mapping[int, list[fx.Node]],
) -> set[fx.Node]:
    """Values that any layer can compute by itself.

    What is written in place is free only if nothing reads it before the last write.
    """
    place = {node: at for at, node in enumerate(nodes)}
    free: set[fx.Node] = set()
    for node in nodes:
        if node in capture.owned:
            if not capture.owned[node].is_trained and memory[node] not in writes:
                free.add(node)
        elif (
            node.op == "get_attr"
            or node in counts
            or (
                node.op == "call_function"
                and not draws(node.target)
                and all(one in free for one in node.all_input_nodes)
            )
        ):
            free.add(node)
    members: dict[int, list[fx.Node]] = defaultdict(list)
    for node in nodes:
        members[memory[node]].append(node)
    for key, each in writes.items():
        last = place[each[-1]]
        is_whole = all(one in free for one in members[key])
        readers = {
            user for one in members[key] for user in one.users if user in place
        } - set(members[key])
        if not is_whole or any(place[user] < last for user in readers):
            drop(free, members[key])
    return free


def drop(free: set[fx.Node], nodes: list[fx.Node]) -> None:
    """Let values, and what follows from them, be free no more."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node in free:
            free.discard(node)
            waiting += node.users


def weight_values(
    capture: Capture,
    nodes: list[fx.Node],
    free: set[fx.Node],
    memory: Mapping[fx.Node, int],
    writes: Mapping[int, list[fx.Node]],
) -> set[fx.Node]:
    """Values that follow from parameters and from no input, parameters as well.

    They run late, so what reads a buffer that is written to is none of them.
    """
    found = {node for node in nodes if node in capture.owned}
    for node in nodes:
        if (
            node.op == "call_function"
            and node not in free
            and not draws(node.target)
            and memory[node] not in writes
            and all(
                one in free or (one in found and memory[one] not in writes)
                for one in node.all_input_nodes
            )
        ):
            found.add(node)
    return found


def views(
    nodes: list[fx.Node],
    memory: Mapping[fx.Node, int],
    writes: Mapping[int, list[fx.Node]],
) -> Iterator[fx.Node]:
    """Yield the views of whole tensors: what they view is rather carried than they."""
    for node in nodes:
        value, seen = node.meta.get("val"), shared(node)
        if not seen or memory[node] in writes or not isinstance(value, Tensor):
            continue
        whole = seen[0].meta.get("val")
        if isinstance(whole, Tensor) and has_as_many(value, whole):
            yield node


def has_as_many(view: Tensor, whole: Tensor) -> bool:
    """Whether a view has as many numbers as what it views, in the same type."""
    return view.dtype == whole.dtype and bool(view.numel() >= whole.numel())


def in_order(
    nodes: list[fx.Node], free: set[fx.Node], late: set[fx.Node]
) -> Iterator[fx.Node]:
    """Yield what is run once; some of it as late as it can be.

    An element of several results comes right behind them.
    """
    known, done = set(nodes), set[fx.Node]()

    def emit(node: fx.Node) -> Iterator[fx.Node]:
        if node in done or node in free or node.op == "placeholder":
            return
        done.add(node)
        for before in node.all_input_nodes:
            if before in late:
                yield from emit(before)
        yield node
        for user in node.users:
            if user in known and is_element(user):
                yield from emit(user)

    for node in nodes:
        if node not in late:
            yield from emit(node)
    for node in nodes:  # an output that is late
        yield from emit(node)


def is_element(node: fx.Node) -> bool:
    """Whether a node takes one of several results."""
    return getattr(node.target, "__name__", "") == "getitem"


def trained_values(capture: Capture, nodes: list[fx.Node]) -> Iterator[fx.Node]:
    """Yield the values that a gradient comes back for."""
    found = {node for node, owned in capture.owned.items() if owned.is_trained}
    yield from found
    for node in nodes:
        value = node.meta.get("val")
        is_number = not isinstance(value, Tensor) or value.is_floating_point()
        if not is_number or is_cut_off(node):
            continue
        if any(one in found for one in node.all_input_nodes):
            found.add(node)
            yield node


def is_cut_off(node: fx.Node) -> bool:
    """Whether no gradient goes through an operator."""
    if node.target in {aten.detach.default, aten.detach_.default}:
        return True
    return node.target is GRADIENT_SWITCH and node.args[0] is False
