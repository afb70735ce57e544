"""Blocks under torch.no_grad, written out in the graph around them.

    torch.export                            here
    z = no_grad(body, y, weight, count)     y_ = y.detach(); weight_ = weight.detach()
                                            ... body of y_, weight_, count

What goes into such a block is detached, so nothing in it needs a gradient, and all
operators compute what they do under torch.no_grad. So writes to buffers and random
draws are found where all others are. What was only written to is itself behind the
block, with the gradient that it had. In: the graph that `torch.export` made, which is
changed. Called by `capture`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor, fx

from plimsoll_trainer.torch_internals.graphs import GRADIENT_SWITCH, aten, given_back


def write_out_blocks(root: fx.GraphModule, untracked: Collection[fx.Node]) -> None:
    """Put the operators of each block in its place.

    Args:
        root: has the graph, and those of the blocks.
        untracked: buffers, which need no gradient and are written as they are.
    """
    for node in list(root.graph.nodes):
        if node.op == "call_function" and node.target is GRADIENT_SWITCH:
            is_on, block, *given = node.args
            if not is_on:
                write_out(root, node, block, given, untracked)


def write_out(
    root: fx.GraphModule,
    node: fx.Node,
    block: fx.Node,
    given: list[Any],
    untracked: Collection[fx.Node],
) -> None:
    """Put the operators of one block in its place."""
    graph, inner = root.graph, root.get_submodule(str(block.target))
    assert isinstance(inner, fx.GraphModule)  # noqa: S101 - torch.export made it
    values: dict[fx.Node, Any] = {}
    places = dict(zip(inner.graph.find_nodes(op="placeholder"), given, strict=True))
    with graph.inserting_before(node):
        for one in inner.graph.nodes:
            if one.op == "placeholder":
                value = places[one]
                values[one] = value if value in untracked else detached(graph, value)
            elif one.op == "get_attr":
                name = f"{str(block.target).replace('.', '_')}_{one.target}"
                root.add_module(name, inner.get_submodule(str(one.target)))
                values[one] = graph.get_attr(name)
            elif one.op != "output":
                values[one] = graph.node_copy(one, values.__getitem__)
    results: Any = inner.graph.output_node().args[0]
    for user in list(node.users):  # each takes one result
        result = rewritten(results[user.args[1]])
        user.replace_all_uses_with(places.get(result, values[result]))
        graph.erase_node(user)
    graph.erase_node(node)
    if not block.users:
        graph.erase_node(block)


def rewritten(node: fx.Node) -> fx.Node:
    """What an operator has written to and gives back: a gradient still comes to it."""
    before = given_back(node.target, node.args, node.kwargs)
    return rewritten(before) if isinstance(before, fx.Node) else node


def detached(graph: fx.Graph, value: Any) -> Any:
    """A value that no gradient comes back for; a number as it is."""
    if not isinstance(value, fx.Node) or not isinstance(value.meta.get("val"), Tensor):
        return value
    made = graph.call_function(aten.detach.default, (value,))
    made.meta = dict(value.meta)
    return made
