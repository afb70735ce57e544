"""Finds the blocks of a model by what depends on what, whatever they are called.

In: a model on the meta device and a function that runs it. Out: the path of the block
of each call, in order. Members of a list are blocks if all that comes later depends on
what came before through them alone. The graph that autograd keeps of a forward pass
says so: a *cut* is a node of it that every path from the output to the inputs leads
through.

    images -> [conv] -> cut -> [norm] -> (+) -> cut -> [norm] -> (+) -> cut -> [head]
                         +----------------^      +----------------^

A member that is such lists for the most part is opened: stages are, residual branches
are not, for these are led around.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from torch import Tensor, nn

from plimsoll_trainer.adapters.trees import tensors_of

Node = Any
"""Of autograd's graph."""
SMALLEST = 0.05
"""Share of the parameters of the largest list, below which one is no list of blocks."""
MOST = 0.5
"""Share of a member's parameters, in lists inside of it, from which on it is opened."""


def cut_nodes(output: Tensor) -> set[Node]:
    """Nodes that all paths from an output to the inputs lead through.

    Nodes are numbered as they were made, so the newest of those that are still to be
    visited is no predecessor of any other: where it is the only one, it is a cut.
    """
    root = output.grad_fn
    if root is None:
        return set()
    waiting, known, cuts = [(-number(root), 0, root)], {root}, set[Node]()
    while waiting:
        *_, node = heappop(waiting)
        if not waiting:
            cuts.add(node)
        for before, _ in node.next_functions:
            # Parameters have a node each, which nothing leads to but they themselves.
            if before is None or hasattr(before, "variable") or before in known:
                continue
            known.add(before)
            heappush(waiting, (-number(before), len(known), before))
    return cuts


def number(node: Node) -> int:
    """Place of a node in the order in which they were made."""
    made: int = node._sequence_nr()  # noqa: SLF001 - has no public name
    return made


def activations_of(tree: Any) -> Tensor | None:
    """The first tensor that has a gradient."""
    return next((one for one in tensors_of(tree) if one.requires_grad), None)


@dataclass(slots=True)
class Member:
    """A module of a list, and what is seen of its calls."""

    path: str
    module: nn.Module
    entered: list[tuple[int, Node]] = field(default_factory=list)
    """Number of the call in the pass, and the node of the activations."""
    left: list[Node] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Number of its parameters."""
        return size_of(self.module)


def size_of(module: nn.Module) -> int:
    """Number of a module's parameters."""
    return sum(one.numel() for one in module.parameters())


def find_blocks(
    model: nn.Module, run: Callable[[], Tensor], batch: int
) -> tuple[str, ...]:
    """Paths of the blocks, by call; none, if no list of the model is a chain.

    Args:
        model: whose lists are looked at.
        run: runs its forward pass on the meta device, and gives its output.
        batch: samples that it runs with.
    """
    lists = {
        path: [
            Member(f"{path}.{name}", child) for name, child in module.named_children()
        ]
        for path, module in model.named_modules()
        if path and is_list(module)
    }
    cuts = observe([one for members in lists.values() for one in members], run, batch)
    chains = {
        path: members for path, members in lists.items() if is_chain(members, cuts)
    }
    sizes = {
        path: sum(one.size for one in chains[path]) for path in outermost(chains, "")
    }
    smallest = SMALLEST * max(sizes.values(), default=0)
    found = [
        block
        for path, size in sizes.items()
        if size >= smallest
        for block in opened(chains, path)
    ]
    calls = sorted((at, block.path) for block in found for at, _ in block.entered)
    return tuple(path for _, path in calls)


def is_list(module: nn.Module) -> bool:
    """Whether a module is its children in order, and nothing else."""
    if isinstance(module, nn.Sequential):
        return type(module).forward is nn.Sequential.forward and len(module) > 0
    return isinstance(module, nn.ModuleList) and len(module) > 0


def observe(members: list[Member], run: Callable[[], Tensor], batch: int) -> set[Node]:
    """Run the model, note the calls of the members, and find the cuts."""
    count = 0

    def enter(member: Member) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, kwargs: Any) -> None:
            nonlocal count
            count += 1
            member.entered.append((count, node_of((args, kwargs), batch)))

        return hook

    def leave(member: Member) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, output: Any) -> None:
            del args
            member.left.append(node_of(output, batch))

        return hook

    handles = []
    for one in members:
        module = one.module
        handles.append(module.register_forward_pre_hook(enter(one), with_kwargs=True))
        handles.append(module.register_forward_hook(leave(one)))
    try:
        return cut_nodes(run())
    finally:
        for handle in handles:
            handle.remove()


def node_of(tree: Any, batch: int) -> Node:
    """Node of the activations in arguments or results, if their rows are samples."""
    x = activations_of(tree)
    return x.grad_fn if x is not None and x.shape[:1] == (batch,) else None


def is_chain(members: list[Member], cuts: set[Node]) -> bool:
    """Whether members are called in turn, once or round by round, between cuts."""
    calls = [(at, place) for place, one in enumerate(members) for at, _ in one.entered]
    order = [place for _, place in sorted(calls)]
    rounds = len(order) // len(members)
    nodes = (
        node
        for one in members
        for node in (*(node for _, node in one.entered), *one.left)
    )
    in_turn = rounds > 0 and order == [*range(len(members))] * rounds
    return in_turn and all(node in cuts for node in nodes)


def outermost(chains: Mapping[str, list[Member]], below: str) -> Iterator[str]:
    """Yield the chains below a path that are in no other one below it."""
    inside = [path for path in chains if is_below(path, below)]
    for path in inside:
        if not any(is_below(path, other) for other in inside):
            yield path


def is_below(path: str, other: str) -> bool:
    """Whether a module is in another one."""
    return path != other and (not other or path.startswith(f"{other}."))


def opened(chains: Mapping[str, list[Member]], path: str) -> list[Member]:
    """Members of a chain, or those inside of them, if all of them can be opened."""
    members, found = chains[path], list[Member]()
    for one in members:
        inside = [
            inner
            for chain in outermost(chains, one.path)
            for inner in opened(chains, chain)
        ]
        if sum(inner.size for inner in inside) < max(1, MOST * one.size):
            return members
        found += inside
    return found
