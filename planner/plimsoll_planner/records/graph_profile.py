"""Costs of one training step, operator by operator: a graph for the placement planner.

Columns, not objects: a graph of 3e5 operators is read and written in seconds. Nodes
stand in an order in which every edge points forward, so there is no cycle. Words:

    value      all that a node returns
    storage    memory behind values; a view and an operator that writes in place hold
               the storage of another node's value, a node of two results two storages
    group      nodes that stand on one device, at least all that share a storage
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from operator import lt

from plimsoll_planner.records.bounds import (
    LARGEST_INTEGER,
    Bytes,
    Count,
    Digest,
    Index,
    Name,
    Seconds,
)
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeColumns(Record):
    """Entry i is node i: one call of an operator, or something that a step is given."""

    name: tuple[Name, ...]
    operator: tuple[Index, ...]
    """Which entry of the profile's `operators`."""
    seconds: tuple[Seconds | None, ...]
    """On one device, alone; null: nobody knows, and the graph cannot be placed."""
    output_bytes: tuple[Bytes, ...]
    """Of the value as it is sent, without gaps."""
    is_contiguous: tuple[bool, ...]
    """Whether it is sent as it lies; if not, the sender copies it first."""
    workspace_bytes: tuple[Bytes, ...]
    """Held while the operator runs, and by nothing afterwards."""
    packed_workspace_bytes: tuple[Bytes, ...]
    """Held instead, if all that it reads and is not sent as it lies comes from other
    devices."""
    mixed_workspace_bytes: tuple[Bytes, ...]
    """Held instead, at the most, if only some of it does."""
    group: tuple[Index, ...]
    """Numbered as they first occur."""
    is_random: tuple[bool, ...]
    """Whether it draws random numbers, which must not depend on the placement."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphEdges(Record):
    """Entry i: a node that has to run before another one."""

    source: tuple[Index, ...]
    target: tuple[Index, ...]
    carries_value: tuple[bool, ...]
    """Whether the target reads the source's value; if not, it only comes later in the
    order, as one that writes in place does behind readers of what it overwrites."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageColumns(Record):
    """Entry i is storage i."""

    num_bytes: tuple[Bytes, ...]
    is_parameter: tuple[bool, ...]
    """Whether it is that of a parameter, which is there before and after the step; the
    parameters of its group have at least its bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldColumns(Record):
    """Entry i: a node whose value keeps a storage alive."""

    node: tuple[Index, ...]
    storage: tuple[Index, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterColumns(Record):
    """Entry i is parameter i; its bytes stand where its node does, for all steps."""

    name: tuple[Name, ...]
    node: tuple[Index, ...]
    """The node that returns it, or that alone uses it."""
    gradient: tuple[Index | None, ...]
    """The node that returns its gradient; null: it has none."""
    parameter_bytes: tuple[Bytes, ...]
    gradient_bytes: tuple[Bytes, ...]
    """Of the tensor that gradients are added to."""
    optimizer_bytes: tuple[Bytes, ...]
    step_bytes: tuple[Bytes, ...]
    """Held while the optimizer steps it, and by nothing afterwards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphProfile(Document):
    """Forward pass, loss and backward pass of one step as a graph of operators."""

    graph_digest: Digest
    """Over all but what was measured (`digest_of_graph`): whoever runs a placement
    captures the graph again, and has to find the same."""
    operators: tuple[Name, ...]
    nodes: NodeColumns
    edges: GraphEdges
    storages: StorageColumns
    holds: HoldColumns
    parameters: ParameterColumns
    outputs: tuple[Index, ...]
    """Nodes whose values are kept until the step is over, such as the loss."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes.name)

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return max(self.nodes.group) + 1

    def check_rules(self) -> None:
        """Columns fit each other, edges point forward, storages stand in one place."""
        if not self.nodes.name:
            raise self.refuse("nodes.name", "at least one node", self.nodes.name)
        self.nodes.require_equal_lengths("name", of="node")
        self.edges.require_equal_lengths("source", of="edge")
        self.storages.require_equal_lengths("num_bytes", of="storage")
        self.holds.require_equal_lengths("node", of="pair of node and storage")
        self.parameters.require_equal_lengths("name", of="parameter")
        self.nodes.require_distinct("name", self.nodes.name)
        self.parameters.require_distinct("name", self.parameters.name)
        self._check_references()
        self._check_edges()
        self._check_groups()
        self._check_parameters()
        self._check_sums()
        self._check_digest()

    def _check_references(self) -> None:
        """All that is referred to is there."""
        gradients = [g for g in self.parameters.gradient if g is not None]
        nodes, storages = self.num_nodes, len(self.storages.num_bytes)
        for path, found, length in (
            ("nodes.operator", self.nodes.operator, len(self.operators)),
            ("edges.target", self.edges.target, nodes),
            ("holds.node", self.holds.node, nodes),
            ("holds.storage", self.holds.storage, storages),
            ("parameters.node", self.parameters.node, nodes),
            ("parameters.gradient", gradients, nodes),
            ("outputs", self.outputs, nodes),
        ):
            if found and max(found) >= length:
                raise self.refuse(path, f"below {length}, which is all", max(found))

    def _check_edges(self) -> None:
        """Edges point forward and occur once."""
        source, target, name = self.edges.source, self.edges.target, self.nodes.name
        if not all(map(lt, source, target)):
            ends = next((s, t) for s, t in zip(source, target, strict=True) if s >= t)
            rule = (
                "edges from a node to a later one: sort the nodes; if no order does, "
                "there is a cycle through these two"
            )
            path = "edges.target"
            raise self.refuse(path, rule, " -> ".join(name[end] for end in ends))
        self._require_distinct_pairs("edges", source, target)

    def _require_distinct_pairs(
        self, field: str, first: tuple[int, ...], second: tuple[int, ...]
    ) -> None:
        """Raise `InvalidFieldError` if a pair occurs twice; quick if none does."""
        if len(set(zip(first, second, strict=True))) < len(first):
            self.require_distinct(field, zip(first, second, strict=True))

    def _check_groups(self) -> None:
        """Groups are numbered as they occur; a storage is within one."""
        group, most = self.nodes.group, -1
        for node, its_group in enumerate(group):
            if its_group > most + 1:
                path = f"nodes.group[{node}]"
                raise self.refuse(path, f"at most {most + 1}, the next one", its_group)
            most = max(most, its_group)
        self._require_distinct_pairs("holds", self.holds.node, self.holds.storage)
        found: dict[int, int] = {}
        for node, storage in zip(self.holds.node, self.holds.storage, strict=True):
            if found.setdefault(storage, group[node]) != group[node]:
                rule = f"group {found[storage]}, in which its storage is"
                name = self.nodes.name[node]
                raise self.refuse("nodes.group", rule, f"{name}: {group[node]}")

    def _check_parameters(self) -> None:
        """Bytes of parameters are no fewer than those of their storages, by group.

        Storages of parameters are counted nowhere else, and bounds rely on them.
        """
        group, storages = self.nodes.group, self.storages
        stated, held = [0] * self.num_groups, [0] * self.num_groups
        parameters = zip(
            self.parameters.node, self.parameters.parameter_bytes, strict=True
        )
        for node, num_bytes in parameters:
            stated[group[node]] += num_bytes
        pairs = zip(self.holds.storage, self.holds.node, strict=True)
        for storage, node in dict(pairs).items():
            if storages.is_parameter[storage]:
                held[group[node]] += storages.num_bytes[storage]
        for its_group, (found, least) in enumerate(zip(stated, held, strict=True)):
            if found < least:
                name = self.nodes.name[group.index(its_group)]
                rule = f"at least {least} in the group of {name}, as its storages have"
                raise self.refuse("parameters.parameter_bytes", rule, found)

    @property
    def all_bytes(self) -> int:
        """Sum of all bytes; a device that sends nothing twice never holds more."""
        nodes, parameters = self.nodes, self.parameters
        columns = (
            nodes.output_bytes,
            nodes.workspace_bytes,
            nodes.packed_workspace_bytes,
            nodes.mixed_workspace_bytes,
            self.storages.num_bytes,
            parameters.parameter_bytes,
            parameters.gradient_bytes,
            parameters.optimizer_bytes,
            parameters.step_bytes,
        )
        return sum(map(sum, columns))

    def _check_sums(self) -> None:
        """All bytes together are a number that a record holds, and so is any peak."""
        if self.all_bytes > LARGEST_INTEGER:
            rule = "at most 2^53 - 1 bytes of nodes, storages and parameters together"
            raise self.refuse("nodes", rule, self.all_bytes)

    def _check_digest(self) -> None:
        """The digest is that of the columns: 0.6 s for 3e5 nodes, a third of reading.

        Last, for another rule that is broken says more.
        """
        found = digest_of_graph(
            self.operators,
            self.nodes,
            self.edges,
            self.storages,
            self.holds,
            self.parameters,
            self.outputs,
        )
        if found != self.graph_digest:
            rule = f"{found}, by its columns: capture the graph again"
            raise self.refuse("graph_digest", rule, self.graph_digest)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfiledGraph(Record):
    """Graph of a step of one micro-batch."""

    micro_batch: Count
    """b, samples."""
    graph: GraphProfile


MEASURED = frozenset(
    {
        "seconds",
        "workspace_bytes",
        "packed_workspace_bytes",
        "mixed_workspace_bytes",
        "num_bytes",
        "optimizer_bytes",
        "step_bytes",
    }
)
"""Columns that nobody knows who has captured a graph and measured nothing."""


def digest_of_graph(
    operators: tuple[str, ...],
    nodes: NodeColumns,
    edges: GraphEdges,
    storages: StorageColumns,
    holds: HoldColumns,
    parameters: ParameterColumns,
    outputs: tuple[int, ...],
) -> str:
    """`sha256:...` over the parts of a graph but what depends on a device."""
    parts = [part.to_json() for part in (nodes, edges, storages, holds, parameters)]
    for columns in parts:
        for name in MEASURED:
            columns.pop(name, None)
    text = json.dumps(
        [operators, parts, outputs],
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
    )
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
