"""A graph as arrays, for algorithms that go through 1e5 nodes in a second.

In: a `GraphProfile`. Out: `Graph`. Called by `place`, and by whoever asks for a curve.

Edges, uses and holds are in compressed rows: those of node i are entries
`first[i]:first[i + 1]`. A use is what keeps a value alive: an edge that carries it, or
the parameter that a gradient is added to (`is_addition`), which stands on a device of
its own and asks for no place in the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.records.graph_profile import GraphProfile

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Pairs (source, target), ordered by source."""

    first: Ints
    """Of source i from `first[i]` on, up to `first[i + 1]`."""
    source: Ints
    target: Ints

    def of(self, sources: Ints) -> Ints:
        """Places of all pairs of some sources, source by source."""
        starts = self.first[sources]
        return ranges(starts, self.first[sources + 1] - starts)

    def lists(self) -> list[list[int]]:
        """Targets of each source, for loops in Python."""
        target, first = self.target.tolist(), self.first.tolist()
        return [target[begin:end] for begin, end in pairwise(first)]

    def reversed(self, num_targets: int) -> Rows:
        """The same pairs by target."""
        return rows(num_targets, self.target, self.source)


def rows(num_sources: int, source: Ints, target: Ints) -> Rows:
    """Pairs by source; those of one source stay in their order."""
    order = np.argsort(source, kind="stable")
    counts = np.bincount(source, minlength=num_sources)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Rows(first=first, source=source[order], target=target[order])


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Numbers from each start on, as many as its length says, in one array."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    within: Ints = np.arange(total) - np.repeat(ends - lengths, lengths)
    return within + np.repeat(starts, lengths)


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """Columns of a profile as arrays; V nodes, G groups."""

    names: tuple[str, ...]
    seconds: Floats
    output_bytes: Ints
    packed_bytes: Ints
    """Of the copy that a sender makes of a value; 0 if it is sent as it lies."""
    workspace_bytes: Ints
    packed_workspace_bytes: Ints
    """Held instead by a node that receives all of its `gaps`."""
    mixed_workspace_bytes: Ints
    """Held instead by one that receives some of them."""
    gaps: Rows
    """Nodes of other groups that a node reads and that are not sent as they lie, if its
    workspace depends on them."""
    gap_readers: Rows
    """The same, by the node that is read."""
    group: Ints
    is_kept: Flags
    """Whether the value is kept to the end."""
    after: Rows
    """Edges."""
    before: Rows
    """The same, by target."""
    uses: Rows
    """Uses of values; the target of an addition is the parameter's node."""
    is_addition: Flags
    """Whether a use adds a gradient to a parameter's, and is no node that reads."""
    users: Rows
    """Uses by target."""
    holds: Rows
    """Storages of nodes; those of parameters are not among them."""
    holders: Rows
    """Nodes of storages."""
    written: Rows
    """Storages of nodes that return gradients, those of parameters among them."""
    writers: Rows
    """All nodes that hold such a storage, by storage."""
    storage_bytes: Ints
    """0 for those of parameters, which `group_state` has."""
    held_bytes: Ints
    """Of all storages of a node, parameters among them."""
    members: Rows
    """Nodes of groups."""
    group_state: Ints
    """Bytes that a group holds from step to step."""
    group_step: Ints
    """Most bytes that the optimizer holds on top for one of its parameters."""

    @property
    def num_nodes(self) -> int:
        """V."""
        return len(self.seconds)

    @property
    def num_groups(self) -> int:
        """G."""
        return len(self.group_state)


def graph_of(profile: GraphProfile) -> Graph:
    """Arrays of a profile.

    Raises:
        CannotPlanError: nobody knows the seconds of a node.
    """
    require_seconds(profile)
    nodes, num_nodes = profile.nodes, profile.num_nodes
    group, output_bytes = integers(nodes.group), integers(nodes.output_bytes)
    source, target = integers(profile.edges.source), integers(profile.edges.target)
    carries = np.array(profile.edges.carries_value, dtype=np.bool_)
    after = rows(num_nodes, source, target)
    owners = gradient_owners(profile)
    use_source = np.concatenate([source[carries], owners[0]])
    use_target = np.concatenate([target[carries], owners[1]])
    uses = rows(num_nodes, use_source, use_target)
    is_addition = np.arange(len(use_source)) >= int(carries.sum())
    is_addition = is_addition[np.argsort(use_source, kind="stable")]
    is_kept = np.zeros(num_nodes, dtype=np.bool_)
    is_kept[integers(profile.outputs)] = True
    is_standing = np.array(profile.storages.is_parameter, dtype=np.bool_)
    num_bytes = integers(profile.storages.num_bytes)
    node, storage = integers(profile.holds.node), integers(profile.holds.storage)
    held_bytes = np.zeros(num_nodes, dtype=np.int64)
    np.add.at(held_bytes, node, num_bytes[storage])
    counted = ~is_standing[storage]
    holds = rows(num_nodes, node[counted], storage[counted])
    written = np.isin(node, owners[0])
    may_write = np.isin(storage, storage[written])
    state, step = states_of_groups(profile, group)
    workspaces = np.stack(
        [
            integers(nodes.workspace_bytes),
            integers(nodes.packed_workspace_bytes),
            integers(nodes.mixed_workspace_bytes),
        ]
    )
    has_gaps = ~np.array(nodes.is_contiguous, dtype=np.bool_)
    gaps = gaps_of(uses, is_addition, group, has_gaps, workspaces)
    return Graph(
        names=nodes.name,
        seconds=np.array(nodes.seconds, dtype=np.float64),
        output_bytes=output_bytes,
        packed_bytes=np.where(has_gaps, output_bytes, 0),
        workspace_bytes=workspaces[0],
        packed_workspace_bytes=workspaces[1],
        mixed_workspace_bytes=workspaces[2],
        gaps=gaps,
        gap_readers=gaps.reversed(num_nodes),
        group=group,
        is_kept=is_kept,
        after=after,
        before=after.reversed(num_nodes),
        uses=uses,
        is_addition=is_addition,
        users=uses.reversed(num_nodes),
        holds=holds,
        holders=holds.reversed(len(num_bytes)),
        written=rows(num_nodes, node[written], storage[written]),
        writers=rows(len(num_bytes), storage[may_write], node[may_write]),
        storage_bytes=np.where(is_standing, 0, num_bytes),
        held_bytes=held_bytes,
        members=rows(profile.num_groups, group, np.arange(num_nodes)),
        group_state=state,
        group_step=step,
    )


def integers(column: tuple[int, ...] | list[int]) -> Ints:
    """A column of whole numbers."""
    return np.array(column, dtype=np.int64)


def require_seconds(profile: GraphProfile) -> None:
    """Raise `CannotPlanError` if nobody knows the seconds of a node."""
    seconds = profile.nodes.seconds
    if None in seconds:
        place = seconds.index(None)
        operator = profile.operators[profile.nodes.operator[place]]
        raise CannotPlanError(
            f"node {profile.nodes.name[place]} ({operator}) has no seconds, nor have "
            f"{seconds.count(None) - 1} others: measure them on the device, or state "
            "the seconds of their operators"
        )


def gradient_owners(profile: GraphProfile) -> tuple[Ints, Ints]:
    """Nodes that return gradients, and the nodes of their parameters."""
    parameters = profile.parameters
    pairs = zip(parameters.gradient, parameters.node, strict=True)
    found = [(gradient, node) for gradient, node in pairs if gradient is not None]
    return integers([one[0] for one in found]), integers([one[1] for one in found])


def gaps_of(
    uses: Rows, is_addition: Flags, group: Ints, has_gaps: Flags, workspaces: Ints
) -> Rows:
    """Nodes and what they read with gaps, as `Graph.gaps` has them.

    Args:
        uses: of all values.
        is_addition: whether a use reads nothing.
        group: of each node.
        has_gaps: whether its value is not sent as it lies.
        workspaces: row i: workspaces of kind i of all nodes.
    """
    source, target = uses.source, uses.target
    depends = (workspaces != workspaces[0]).any(axis=0)
    is_gap = has_gaps[source] & depends[target] & ~is_addition
    is_gap &= group[source] != group[target]
    return rows(len(group), target[is_gap], source[is_gap])


def states_of_groups(profile: GraphProfile, group: Ints) -> tuple[Ints, Ints]:
    """Bytes of parameters, gradients and optimizers by group, and of their steps."""
    parameters = profile.parameters
    where = group[integers(parameters.node)]
    state = np.zeros(profile.num_groups, dtype=np.int64)
    step = np.zeros(profile.num_groups, dtype=np.int64)
    for column in (
        parameters.parameter_bytes,
        parameters.gradient_bytes,
        parameters.optimizer_bytes,
    ):
        np.add.at(state, where, integers(column))
    np.maximum.at(step, where, integers(parameters.step_bytes))
    return state, step
