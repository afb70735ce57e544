"""Amounts that no placement of a graph on K devices can be below.

In: a graph, K. Out: `PlacementBounds`. Called by `place`; they alone prove that a graph
does not fit. Each holds for every placement, every order and every window, under the
rules of life in `curve`:

    states    all states / K                      some device has an even share or more
    group     states of a group, beside one storage of it or one step of a parameter
    node      while a node runs its device holds its inputs, as storages or as copies,
              what it returns, its workspace, and the states of its group
    cut       while a node runs, all that was made before it in every order and is used
              by it or behind it in every order is on some device: (states + these) / K
    path      longest path of values, all on one device; work / K

An input is the lesser of what is sent of it and of the storages that it holds, since
one of the two is there; of inputs that share a group the largest counts.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.graph.arrays import Flags, Graph, Ints
from plimsoll_planner.graph.levels import critical_path_s
from plimsoll_planner.records.placement_plan import PlacementBounds

NUM_CUTS = 8
"""Nodes at which a cut is looked for; each takes a pass over the graph."""


def bounds_of(graph: Graph, num_devices: int) -> PlacementBounds:
    """Lower bounds of peak and makespan."""
    states = int(graph.group_state.sum())
    groups, nodes = least_bytes_of_groups(graph), bytes_of_nodes(graph)
    group, node = int(groups.argmax()), int(nodes.argmax())
    cut = max(cut_bytes(graph, one) for one in likely_cuts(graph))
    work_s = float(graph.seconds.sum()) / num_devices
    return PlacementBounds(
        states_bytes=-(-states // num_devices),
        cut_bytes=-(-(states + cut) // num_devices),
        group_bytes=int(groups[group]),
        largest_group=graph.names[graph.members.target[graph.members.first[group]]],
        node_bytes=int(nodes[node]),
        largest_node=graph.names[node],
        critical_path_s=critical_path_s(graph),
        work_s=work_s,
    )


def least_bytes_of_groups(graph: Graph) -> Ints:
    """Bytes of each group on its device, at the least, at some moment."""
    most = graph.group_step.copy()
    where = graph.group[graph.holds.source]
    np.maximum.at(most, where, graph.storage_bytes[graph.holds.target])
    return graph.group_state + most


def bytes_of_inputs(graph: Graph) -> Ints:
    """Bytes of each node's value as an input, at the least."""
    return np.minimum(graph.output_bytes, graph.held_bytes)


def bytes_of_nodes(graph: Graph) -> Ints:
    """Bytes on the device of each node while it runs, at the least."""
    own = np.zeros(graph.num_nodes, dtype=np.int64)
    np.add.at(own, graph.holds.source, graph.storage_bytes[graph.holds.target])
    own += least_workspaces(graph) + graph.group_state[graph.group]
    source, target = graph.users.target, graph.users.source
    is_addition = graph.is_addition[use_order(graph)]
    reads = (graph.group[source] != graph.group[target]) & ~is_addition
    source, target = source[reads], target[reads]
    key = target * graph.num_groups + graph.group[source]
    pairs, which = np.unique(key, return_inverse=True)
    most = np.zeros(len(pairs), dtype=np.int64)
    np.maximum.at(most, which, bytes_of_inputs(graph)[source])
    np.add.at(own, pairs // graph.num_groups, most)
    return own


def least_workspaces(graph: Graph) -> Ints:
    """Workspace of each node, whatever it receives; 0 if its least is not known."""
    least = np.minimum(graph.workspace_bytes, graph.packed_workspace_bytes)
    is_mixed = np.diff(graph.gaps.first) > 1
    return np.where(is_mixed, 0, least)


def use_order(graph: Graph) -> Ints:
    """Place of each entry of `users` among the uses."""
    return np.argsort(graph.uses.target, kind="stable")


def likely_cuts(graph: Graph) -> list[int]:
    """Nodes to look for a cut at: kept ones, such as a loss, and some all along.

    More of them make the bound better, fewer never make it wrong.
    """
    if graph.num_nodes <= NUM_CUTS:
        return list(range(graph.num_nodes))
    kept = np.flatnonzero(graph.is_kept)[: NUM_CUTS // 2].tolist()
    along = np.linspace(0, graph.num_nodes - 1, NUM_CUTS - len(kept) + 2)[1:-1]
    return sorted({*kept, *along.astype(np.int64).tolist()})


def cut_bytes(graph: Graph, node: int) -> int:
    """Bytes of values that are on some device whenever a node runs, at the least."""
    is_before = reached(graph, node, is_backward=True)
    is_behind = reached(graph, node, is_backward=False)
    is_behind[node] = True  # it reads, and then it returns
    source, target = graph.uses.source, graph.uses.target
    is_alive = np.zeros(graph.num_nodes, dtype=np.bool_)
    crosses = is_before[source] & is_behind[target] & ~graph.is_addition
    is_alive[source[crosses]] = True
    is_alive |= is_before & graph.is_kept
    # A node of several storages would count those of others twice. A parameter's, which
    # the states have, is not among them: only what the node's own takes is added here.
    counts = np.diff(graph.holds.first)
    alive = np.flatnonzero(is_alive & (counts == 1))
    storage = graph.holds.target[graph.holds.first[alive]]
    most = np.zeros(len(graph.storage_bytes), dtype=np.int64)
    least = np.minimum(graph.output_bytes[alive], graph.storage_bytes[storage])
    np.maximum.at(most, storage, least)
    own = graph.holds.target[graph.holds.first[node] : graph.holds.first[node + 1]]
    most[own] = np.maximum(most[own], graph.storage_bytes[own])
    return int(most.sum())


def reached(graph: Graph, node: int, *, is_backward: bool) -> Flags:
    """Nodes that come before a node in every order, or behind it."""
    edges = (graph.before if is_backward else graph.after).lists()
    is_reached = bytearray(graph.num_nodes)
    stack = [node]
    while stack:
        for other in edges[stack.pop()]:
            if not is_reached[other]:
                is_reached[other] = 1
                stack.append(other)
    return np.frombuffer(is_reached, dtype=np.bool_).copy()
