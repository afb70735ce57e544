"""Text of a layer's graph without names: equal layers have equal text.

Operators, shapes, constants and the form of parameters count; what the module calls
them does not, nor how often a layer drops out if it does.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, fx, nn

from plimsoll_trainer.adapters.any_module.modes import RATE, argument
from plimsoll_trainer.adapters.any_module.parts import Part, form_of
from plimsoll_trainer.adapters.any_module.slices import PASSED, Slice
from plimsoll_trainer.torch_internals.graphs import names_of

DROPPING_RATES = ("p", RATE)


def digest_of(made: Slice, part: Part) -> str:
    """Digest of all of a layer that its costs can depend on."""
    incoming = [form_of(one) for one in (part.passed, *part.takes)]
    outgoing = [form_of(one) for one in (part.output, *part.gives)]
    text = repr((incoming, outgoing, lines_of(made)))
    return hashlib.sha256(text.encode()).hexdigest()


def lines_of(made: Slice) -> list[Any]:
    """One entry for each node, in order; nodes are numbers."""
    number: dict[fx.Node, int] = {}
    lines: list[Any] = []
    for node in made.graph.nodes:
        number[node] = len(number)
        if node.op == "placeholder":
            lines.append("passed" if node.target == PASSED else "taken")
        elif node.op == "get_attr":
            lines.append(fetched(made, str(node.target)))
        else:
            arguments = (node.args, dict(node.kwargs))
            numbered = plain(arguments, number)
            lines.append((str(node.target), without_rates(node, numbered)))
    return lines


def fetched(made: Slice, name: str) -> object:
    """Form of what a node fetches."""
    if name in made.owned:
        owned = made.owned[name]
        tensor = owned.tensor
        is_parameter = isinstance(tensor, nn.Parameter)
        form = (str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad)
        return (is_parameter, owned.persistent, form)
    return made.inner[name].code if name in made.inner else name


def plain(tree: Any, number: dict[fx.Node, int]) -> Any:
    """Arguments with a number for each node."""
    if isinstance(tree, fx.Node):
        return ("node", number[tree])
    if isinstance(tree, (tuple, list)):
        return [plain(one, number) for one in tree]
    if isinstance(tree, dict):
        return [(key, plain(one, number)) for key, one in tree.items()]
    if isinstance(tree, (torch.dtype, torch.layout, torch.device, Tensor)):
        return str(tree)
    return tree if isinstance(tree, (bool, int, float, str, type(None))) else str(tree)


def without_rates(node: fx.Node, numbered: Any) -> Any:
    """Arguments, in which a rate of dropping out is only whether there is one."""
    for name in DROPPING_RATES:
        given = argument(node, name)
        if "dropout" in str(node.target) and isinstance(given, float) and given > 0:
            at = names_of(node.target).index(name)
            if at < len(numbered[0]):
                numbered[0][at] = "some"
    return numbered
