"""Modules that the operators of a step come from, forward and backward.

In: a model, while torch traces it. Out: an `Origin` for each node of the graph. Called
by `tracing`; names of operators begin with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import torch
from torch import fx, nn
from torch.fx.traceback import annotate, preserve_node_meta
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

SAME = (torch.ops.aten.alias.default, torch.ops.aten.detach.default)
"""Operators that return what they are given."""
MODULE = "module"


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where an operator comes from."""

    module: str
    """Path of the innermost module that called it; empty: code around the model."""
    is_backward: bool


@dataclass(kw_only=True)
class Origins:
    """Notes which module runs while a step is traced.

    A joint trace runs the model and autograd once, and what came of it a second time,
    as a module of its own without any inside. The notes are those of the first graph.
    """

    paths: Mapping[nn.Module, str]
    _open: list[AbstractContextManager[None]] = field(init=False, default_factory=list)
    _first: list[fx.Node] = field(init=False, default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within it, modules that are called are noted."""
        with ExitStack() as stack:
            stack.enter_context(preserve_node_meta())
            for handle in (
                register_module_forward_pre_hook(self._enter),
                register_module_forward_hook(self._leave, always_call=True),
            ):
                stack.callback(handle.remove)
            yield

    def of(self, graph: fx.Graph) -> dict[str, Origin]:
        """Name of a node -> origin; no entries where torch says too little."""
        last = called(graph)
        first = self._first or last
        if [one.target for one in first] != [one.target for one in last]:
            return {}
        found = {
            node.name: Origin(
                module=noted.meta.get("custom", {}).get(MODULE, ""),
                is_backward=bool(noted.meta.get("autograd_backward")),
            )
            for noted, node in zip(first, last, strict=True)
        }
        for node in graph.find_nodes(op="call_function", target=getitem):
            found[node.name] = found[node.all_input_nodes[0].name]
        return found

    def _enter(self, module: nn.Module, _: Any) -> None:
        if module in self.paths:
            note: AbstractContextManager[None] = annotate({MODULE: self.paths[module]})
            note.__enter__()
            self._open.append(note)
        elif isinstance(module, fx.GraphModule):
            self._first = called(module.graph)

    def _leave(self, module: nn.Module, *_: Any) -> None:
        if module in self.paths:
            self._open.pop().__exit__(None, None, None)


def called(graph: fx.Graph) -> list[fx.Node]:
    """Nodes that compute something, in order; parts of a result come with it."""
    return [
        node
        for node in graph.nodes
        if node.op == "call_function" and node.target not in {*SAME, getitem}
    ]
