"""The graph of one layer, as a module that is built with tensors of its own.

In: a `Part`. Out: a `Slice`, which a layer's factory builds. Its graph runs on the
device of what is passed in, for as many samples as that has, and makes by itself what
follows from neither inputs nor weights.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from plimsoll_trainer.adapters.any_module.capture import Capture, OwnTensor
from plimsoll_trainer.adapters.any_module.crossings import Alive
from plimsoll_trainer.adapters.any_module.fake_modules import FakeModule
from plimsoll_trainer.adapters.any_module.flow import Flow
from plimsoll_trainer.adapters.any_module.modes import switched
from plimsoll_trainer.adapters.any_module.parts import Part
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.graphs import AUTOCAST, aten

PASSED = "x"
"""Name of the passed value in a layer's forward pass."""
OPERATIONS: Mapping[str, Any] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": max,
    "Min": min,
}
"""By the name of the class of an expression."""


@dataclass(frozen=True, eq=False, slots=True)
class Slice:
    """Builds one layer."""

    fake: FakeModule
    graph: fx.Graph
    owned: Mapping[str, OwnTensor]
    """Tensors by the name that the graph has for them."""
    inner: Mapping[str, fx.GraphModule]
    """Graphs inside of it."""
    writes_buffers: bool

    def __call__(self) -> nn.Module:
        """Build it on torch's default device."""
        root = nn.Module()
        values = self.fake.real([one.tensor for one in self.owned.values()])
        for (name, owned), value in zip(self.owned.items(), values, strict=True):
            hold(root, name, value, persistent=owned.persistent)
        for name, graph in self.inner.items():
            root.add_module(name, graph)
        module = fx.GraphModule(root, self.graph)
        for name, owned in self.owned.items():
            if not isinstance(owned.tensor, nn.Parameter):
                # The constructor takes them all for buffers that are saved.
                path, _, own = name.rpartition(".")
                owner = module.get_submodule(path)
                buffer: Tensor = getattr(owner, own)
                owner.register_buffer(own, buffer, persistent=owned.persistent)
        return module.train()


def hold(root: nn.Module, name: str, value: Tensor, *, persistent: bool) -> None:
    """Put a tensor into a module under the name that it had in the whole one."""
    *path, own = name.split(".")
    for step in path:
        if step not in dict(root.named_children()):
            root.add_module(step, nn.Module())
        root = root.get_submodule(step)
    if isinstance(value, nn.Parameter):
        root.register_parameter(own, value)
    else:
        root.register_buffer(own, value, persistent=persistent)


def slice_of(fake: FakeModule, alive: Alive, part: Part) -> Slice:
    """Slice of a part."""
    writer = Writer(alive.flow, part)
    for node in part.nodes:
        writer.emit(node)
    output: Any = writer.value(part.output)
    if part.gives:
        given = [writer.own(alive, one) for one in part.gives]
        output = (output, *given)
    writer.graph.output(output)
    return Slice(
        fake=fake,
        graph=writer.graph,
        owned=writer.owned,
        inner=writer.inner,
        writes_buffers=writer.writes_buffers,
    )


def anywhere(graph: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph that works on the device of what it is given first."""
    made = copy.deepcopy(graph)
    given = next((node for node in made.graph.nodes if node.op == "placeholder"), None)
    for node in list(made.graph.nodes):
        if given is None or node.op != "call_function":
            continue
        for name, one in node.kwargs.items():
            if isinstance(one, torch.device):
                with made.graph.inserting_before(node):
                    device = made.graph.call_function(getattr, (given, "device"))
                node.update_kwarg(name, device)
    made.recompile()
    return made


class Writer:
    """Writes the graph of a layer."""

    def __init__(self, flow: Flow, part: Part) -> None:
        """Begin with what the layer takes."""
        self.graph = fx.Graph()
        self.owned: dict[str, OwnTensor] = {}
        self.inner: dict[str, fx.GraphModule] = {}
        self.writes_buffers = False
        self._flow, self._part, self._capture = flow, part, flow.capture
        self._values: dict[fx.Node, fx.Node] = {}
        self._made: dict[str, fx.Node] = {}
        self._counts: dict[Any, Any] = {}
        self._values[part.passed] = self.graph.placeholder(PASSED)
        for node in part.takes:
            self._values[node] = self.graph.placeholder(f"taken_{node.name}")

    def value(self, node: fx.Node) -> Any:
        """A value in the layer; what is free is made when it is asked for."""
        if node in self._flow.counts:
            return self._count(self._flow.counts[node])
        if node not in self._values:
            if node in self._capture.owned:
                self._values[node] = self._fetch(self._capture, node)
            elif node.op == "get_attr":
                self._values[node] = self._fetch_graph(str(node.target))
            else:
                self._emit_free(node)
        return self._values[node]

    def emit(self, node: fx.Node) -> None:
        """Run an operator in the layer."""
        if node in self._values:
            return
        copied = self.graph.node_copy(node, self.value)
        self._values[node] = copied
        on_buffer = bool(self._flow.written_buffers(node))
        self.writes_buffers |= on_buffer
        self._adapt(copied)
        if node.op == "call_function":
            switched(node, copied, lambda: self._training(copied), on_buffer=on_buffer)

    def own(self, alive: Alive, node: fx.Node) -> fx.Node:
        """A value that is given, in contiguous memory that nobody else has."""
        made: fx.Node = self.value(node)
        flow = self._flow
        others = {self._part.passed, self._part.output, *self._part.takes}
        others |= {one for one in self._part.gives if one is not node}
        shares = any(flow.memory[one] == flow.memory[node] for one in others - {node})
        is_new = node in self._part.nodes and node is not self._part.output
        largest = max(
            alive.nbytes(one)
            for one in (node, *self._part.nodes)
            if flow.memory[one] == flow.memory[node]
            and isinstance(one.meta.get("val"), Tensor)
        )
        if (
            is_new
            and not shares
            and largest == alive.nbytes(node)
            and node.meta["val"].is_contiguous()
        ):
            return made
        return self.graph.call_function(
            aten.clone.default, (made,), {"memory_format": torch.contiguous_format}
        )

    def _emit_free(self, node: fx.Node) -> None:
        """Make a free value, after all that writes to its memory before it is read."""
        key = self._flow.memory[node]
        members = [
            one
            for write in self._flow.writes.get(key, ())
            for one in (*write.all_input_nodes, write)
            if self._flow.memory.get(one) == key and one not in self._capture.owned
        ]
        for one in (*members, node):
            if one not in self._values and one in self._flow.free:
                for before in one.all_input_nodes:
                    if self._flow.memory.get(before) != key:
                        self.value(before)
                self._copy_free(one)

    def _copy_free(self, node: fx.Node) -> None:
        """Copy a node whose memory nobody has written since."""
        for before in node.all_input_nodes:
            if before not in self._values and before not in self._flow.counts:
                if before in self._capture.owned or before.op == "get_attr":
                    self.value(before)
                else:
                    self._copy_free(before)
        copied = self.graph.node_copy(node, self.value)
        self._values[node] = copied
        self._adapt(copied)

    def _fetch(self, capture: Capture, node: fx.Node) -> fx.Node:
        """A tensor of the module."""
        owned = capture.owned[node]
        self.owned[owned.name] = owned
        made = self._get(owned.name)
        made.meta["owned"] = owned
        return made

    def _fetch_graph(self, target: str) -> fx.Node:
        """A graph inside of the graph."""
        found = self._capture.root.get_submodule(target)
        if not isinstance(found, fx.GraphModule):
            raise WorkloadError(f"the graph has {target!r}, which is no graph")
        self.inner[target] = anywhere(found)
        return self._get(target)

    def _get(self, name: str) -> fx.Node:
        """A node that fetches what the layer has by a name, once."""
        if name not in self._made:
            self._made[name] = self.graph.get_attr(name)
        return self._made[name]

    def _count(self, expression: Any) -> Any:
        """A whole number that follows from the number of samples."""
        if expression.is_Integer:
            return int(expression)
        if expression not in self._counts:
            if expression == self._capture.samples:
                x = self._values[self._part.passed]
                made = self.graph.call_function(aten.sym_size.int, (x, 0))
            else:
                made = self._computed(expression)
            self._counts[expression] = made
        return self._counts[expression]

    def _computed(self, expression: Any) -> fx.Node:
        """A sum, product or quotient of whole numbers.

        Raises:
            WorkloadError: it is something else.
        """
        operation = OPERATIONS.get(expression.func.__name__)
        if operation is None:
            raise WorkloadError(
                f"the module has a size of {expression}, which is no sum, product or "
                "quotient of the number of samples: compute it from a tensor's shape "
                "by + * and //"
            )
        made: fx.Node = self._count(expression.args[0])
        for one in expression.args[1:]:
            made = self.graph.call_function(operation, (made, self._count(one)))
        return made

    def _training(self, before: fx.Node) -> fx.Node:
        """Whether the layer is in training, known before a node."""
        with self.graph.inserting_before(before):
            return self.graph.get_attr("training")

    def _adapt(self, copied: fx.Node) -> None:
        """Let a node work on the device of what is passed in."""
        if copied.op != "call_function":
            return
        if copied.target is AUTOCAST:
            kind = self._device_of_passed(copied, "type")
            copied.args = (kind, *copied.args[1:])
        is_device = any(
            isinstance(one, torch.device)
            for one in (*copied.args, *copied.kwargs.values())
        )
        if is_device:
            device = self._device_of_passed(copied, "")
            copied.args = tuple(
                device if isinstance(one, torch.device) else one for one in copied.args
            )
            copied.kwargs = {
                key: device if isinstance(one, torch.device) else one
                for key, one in copied.kwargs.items()
            }

    def _device_of_passed(self, before: fx.Node, part: str) -> fx.Node:
        """Device of what is passed in, or its type."""
        x = self._values[self._part.passed]
        with self.graph.inserting_before(before):
            device = self.graph.call_function(getattr, (x, "device"))
            if not part:
                return device
            return self.graph.call_function(getattr, (device, part))
