"""Values that are alive between two operators, and what a cut there would pass on.

Positions count the operators of a `Flow`: position 3 is behind operator 3, and -1 is in
front of all of them. What follows from no input is not counted where a layer computes
it by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from plimsoll_trainer.adapters.any_module.flow import Flow, is_element


@dataclass(frozen=True, eq=False, slots=True)
class Alive:
    """When each value is made, and used for the last time."""

    flow: Flow
    made: Mapping[fx.Node, int]
    last: Mapping[fx.Node, int]
    """The output is used behind the last operator."""
    samples: int
    """Of the example, which bytes are counted by."""

    def swept(self) -> Iterator[list[fx.Node]]:
        """Yield what is alive behind each operator, in the order it is made."""
        alive = [node for node in self.made if self.made[node] < 0]
        for at, node in enumerate(self.flow.order):
            if node in self.made:
                alive.append(node)
            alive = [one for one in alive if self.last[one] > at]
            yield alive

    def nbytes(self, node: fx.Node) -> int:
        """Bytes of a value for the samples of the example."""
        value = node.meta["val"]
        size = value.element_size()
        for length in value.shape:
            size *= self.number(length)
        return int(size)

    def number(self, length: Any) -> int:
        """Length of a dimension for the samples of the example."""
        if isinstance(length, int):
            return length
        symbol = self.flow.capture.samples
        return int(length.node.expr.subs({symbol: self.samples}))

    def has_samples(self, node: fx.Node) -> bool:
        """Whether the first dimension of a value counts samples."""
        value = node.meta["val"]
        if not value.ndim or isinstance(value.shape[0], int):
            return False
        return bool(value.shape[0].node.expr == self.flow.capture.samples)

    def can_pass(self, node: fx.Node, alive: Sequence[fx.Node]) -> bool:
        """Whether a value can be what a layer passes on, of those that are alive."""
        if not self.has_samples(node) or not node.meta["val"].is_floating_point():
            return False
        trained = self.flow.trained
        return node in trained or not any(one in trained for one in alive)


def alive_in(flow: Flow, samples: int) -> Alive:
    """Lives of all values."""
    place = {node: at for at, node in enumerate(flow.order)}
    made = dict.fromkeys(flow.capture.inputs, -1) | place
    last = dict.fromkeys(made, -1)
    for node, at in place.items():
        for before in needed_by(flow, node):
            last[before] = max(last[before], at)
    last[flow.capture.output] = len(place)
    used = {node: at for node, at in made.items() if last[node] > at}
    return Alive(flow=flow, made=used, last=last, samples=samples)


def needed_by(flow: Flow, node: fx.Node) -> Iterator[fx.Node]:
    """Yield the values that an operator takes, free ones and the module's aside."""
    owned = flow.capture.owned
    for one in node.all_input_nodes:
        if one not in flow.free and one not in flow.counts and one not in owned:
            yield one


def closed_spans(flow: Flow) -> Iterator[tuple[int, int]]:
    """Yield from where to where no cut may be because of what is written in place.

    Between a memory's beginning and the last write to it; and from the first to the
    last use of a buffer that is written.
    """
    spans: dict[int, list[int]] = {}
    for node in flow.capture.inputs:
        if flow.memory[node] in flow.writes:
            spans[flow.memory[node]] = [0, 0]
    for at, node in enumerate(flow.order):
        keys = [flow.memory[node]]
        keys += [flow.memory[one] for one in node.all_input_nodes]
        is_writing = {key for key in keys if node in flow.writes.get(key, ())}
        owned = {flow.memory[one] for one in node.all_input_nodes} & flow.owned_memory
        for key in {*keys} & flow.writes.keys():
            span = spans.setdefault(key, [at, at])
            if key in is_writing or key in owned:
                span[1] = at
    yield from ((begin, end) for begin, end in spans.values())


def allowed(alive: Alive) -> list[int]:
    """Positions where a cut is possible, the last operator aside.

    None where something is written in place (`closed_spans`), none between several
    results and their elements.
    """
    flow = alive.flow
    closed = [0] * (len(flow.order) + 1)
    several = (
        (made, alive.last[node])
        for node, made in alive.made.items()
        if not isinstance(node.meta.get("val"), Tensor)
    )
    for begin, end in (*closed_spans(flow), *several):
        closed[max(begin, 0)] += 1
        closed[max(end, 0)] -= 1
    positions, depth = [], 0
    for at in range(len(flow.order) - 1):
        depth += closed[at]
        if depth == 0 and not is_element(flow.order[at + 1]):
            positions.append(at)
    return positions
