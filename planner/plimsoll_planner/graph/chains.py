"""Chains of groups: paths that are worth staying on one device.

In: a `Graph` and its levels. Out: lists of groups. Called by `mapping`.

Nodes are peeled off in linear chains (ParDNN's secondary clusters): begin with the node
on the longest path that is left, top level + bottom level, then follow it forward by
the largest bottom level and backward by the largest top level. With a node comes its
whole group, so a later chain finds none of it.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.graph.arrays import Graph
from plimsoll_planner.graph.levels import Levels


def chains_of(graph: Graph, levels: Levels) -> list[list[int]]:
    """Groups of each chain, heads first; every group is in one chain."""
    after, before = graph.after.lists(), graph.before.lists()
    top, bottom = levels.top.tolist(), levels.bottom.tolist()
    group = graph.group.tolist()
    is_taken = bytearray(graph.num_groups)
    found: list[list[int]] = []
    length = levels.top + levels.bottom
    for start in np.lexsort((np.arange(len(length)), -length)).tolist():
        if is_taken[group[start]]:
            continue
        is_taken[group[start]] = 1
        tail = followed(start, after, bottom, group, is_taken)
        head = followed(start, before, top, group, is_taken)
        found.append([*reversed(head), group[start], *tail])
    return found


def followed(
    start: int,
    edges: list[list[int]],
    level: list[float],
    group: list[int],
    is_taken: bytearray,
) -> list[int]:
    """Groups on the way from a node along the edges, by the largest level."""
    way: list[int] = []
    at = start
    while True:
        best, best_level = -1, -1.0
        for node in edges[at]:
            if level[node] > best_level and not is_taken[group[node]]:
                best, best_level = node, level[node]
        if best < 0:
            return way
        is_taken[group[best]] = 1
        way.append(group[best])
        at = best
