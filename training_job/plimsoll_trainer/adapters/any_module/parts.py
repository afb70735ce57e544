"""Layers of the chain as parts of a graph: what each runs, takes and gives.

In: lives of values, cuts. Out: parts in order. Of what is alive behind a part one value
is passed on: that which is soonest used for the last time, for it is the one that the
next part consumes; all others are carried. A value that was passed on and lives on is
given by the part that it was passed to, as a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, fx

from plimsoll_trainer.adapters.any_module.crossings import Alive, needed_by
from plimsoll_trainer.errors import WorkloadError


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """One layer."""

    nodes: tuple[fx.Node, ...]
    passed: fx.Node
    """What comes in first."""
    takes: tuple[fx.Node, ...]
    output: fx.Node
    gives: tuple[fx.Node, ...]
    crossing_bytes: int
    """Of all that is alive behind it, for the samples of the example."""


def parts_of(alive: Alive, cuts: Sequence[int], most: int) -> list[Part]:
    """Layers, at most so many; cuts with the most bytes are left out first."""
    parts = split(alive, cuts)
    while len(parts) > most:
        cuts = coarsened(parts, cuts_behind(parts), most)
        parts = split(alive, cuts)
    return parts


def cuts_behind(parts: Sequence[Part]) -> list[int]:
    """Cuts between parts, without those that could not be made."""
    found, at = [], -1
    for part in parts[:-1]:
        at += len(part.nodes)
        found.append(at)
    return found


def split(alive: Alive, cuts: Sequence[int]) -> list[Part]:
    """Cut a graph; a cut behind which nothing new could be passed on is left out.

    Raises:
        WorkloadError: an input is not used.
    """
    order, inputs = alive.flow.order, alive.flow.capture.inputs
    for node in inputs:
        if node not in alive.made:
            raise WorkloadError(
                f"input {inputs.index(node)} of the module ({node.name}) changes "
                "nothing in its output: leave it out"
            )
    wanted, begun = set(cuts), 0
    passed, carried = inputs[0], set(inputs[1:])
    parts: list[Part] = []
    for at, living in enumerate(alive.swept()):
        if at not in wanted:
            continue
        chosen = passed_of(alive, living, carried)
        if chosen is None:
            continue
        given = [one for one in living if one not in carried and one is not chosen]
        part = part_of(alive, (begun, at + 1), passed, chosen, given, living)
        parts.append(part)
        carried.update(given)
        passed, begun = chosen, at + 1
    output = alive.flow.capture.output
    parts.append(part_of(alive, (begun, len(order)), passed, output, [], [output]))
    return parts


def passed_of(
    alive: Alive, living: Sequence[fx.Node], carried: set[fx.Node]
) -> fx.Node | None:
    """The value that is passed on, of those that are alive behind a part."""
    able = [one for one in living if one not in carried and alive.can_pass(one, living)]
    soonest = min((alive.last[one] for one in able), default=0)
    return next((one for one in able[::-1] if alive.last[one] == soonest), None)


def part_of(
    alive: Alive,
    span: tuple[int, int],
    passed: fx.Node,
    output: fx.Node,
    gives: Sequence[fx.Node],
    living: Sequence[fx.Node],
) -> Part:
    """Part of some operators, with all that they take."""
    nodes = alive.flow.order[slice(*span)]
    made = set(nodes)
    used = {one for node in nodes for one in needed_by(alive.flow, node)}
    taken = (used | {output, *gives}) - made - {passed}
    return Part(
        nodes=nodes,
        passed=passed,
        takes=tuple(one for one in alive.made if one in taken),
        output=output,
        gives=tuple(gives),
        crossing_bytes=sum(alive.nbytes(one) for one in living),
    )


def coarsened(parts: Sequence[Part], cuts: Sequence[int], most: int) -> list[int]:
    """Cuts without those of one class, or every second of it where too few were left.

    A class has equal bytes and equal parts on both sides, so that layers which were
    alike are alike afterwards. The one with the most bytes goes first, then the one
    with the fewest operators around it.
    """
    looks = [look_of(part) for part in parts]
    classes: dict[tuple[int, int, int], list[int]] = {}
    for at in range(len(cuts)):
        key = (-parts[at].crossing_bytes, looks[at], looks[at + 1])
        classes.setdefault(key, []).append(at)

    def rank(key: tuple[int, int, int]) -> tuple[int, int]:
        at = classes[key][0]
        return key[0], len(parts[at].nodes) + len(parts[at + 1].nodes)

    chosen = classes[min(classes, key=rank)]
    if len(parts) - len(chosen) < most // 2:
        chosen = chosen[::2]
    gone = set(chosen)
    return [cut for at, cut in enumerate(cuts) if at not in gone]


def look_of(part: Part) -> int:
    """Number that equal parts have in common: operators and shapes in order."""
    return hash(tuple((str(node.target), form_of(node)) for node in part.nodes))


def form_of(node: fx.Node) -> str:
    """Text of the shape and type of a value."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{value.dtype}{[str(length) for length in value.shape]}"
