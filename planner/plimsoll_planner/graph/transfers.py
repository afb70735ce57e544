"""Sends that follow from a placement and an order.

In: a graph, the device of each group, the place of each node. Out: `Sends`. Called by
`place`, `walk` and `actions`; `curve` counts the same for some nodes at a time.

A value is sent to a device once, for all its uses there. Let f be the place of the
first use there, w the window, p the place of the node that returns the value:

    begin = max(p, f - w)      after that node both sides begin
    end   = f - 1              after that node both sides wait for the end

A gradient has no use with a place: it is added to its parameter's as soon as it is
there. It begins at p, and f = min(p + w, number of nodes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll_planner.graph.arrays import Graph, Ints

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A graph, placed and ordered."""

    graph: Graph
    device: Ints
    """Of each node."""
    place: Ints
    """Of each node in the order."""
    num_devices: int
    window: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Sends:
    """Sends of some nodes, ordered by node and destination."""

    node: Ints
    destination: Ints
    begin: Ints
    end: Ints
    last: Ints
    """Moment of the last use of the copy; see `curve`."""


def sends_of(placed: Placed, nodes: Ints, uses: Ints) -> Sends:
    """Sends of the values of some nodes; `uses` are all of theirs."""
    graph, place = placed.graph, placed.place
    source, target = graph.uses.source[uses], graph.uses.target[uses]
    destination = placed.device[target]
    is_sent = destination != placed.device[source]
    source, target = source[is_sent], target[is_sent]
    is_home = graph.is_home[uses][is_sent]
    later = np.minimum(place[source] + placed.window, graph.num_nodes)
    first = np.where(is_home, later, place[target])
    local = np.searchsorted(nodes, source) if len(nodes) < graph.num_nodes else source
    key = local * placed.num_devices + destination[is_sent]
    size = len(nodes) * placed.num_devices
    begins, last = np.full(size, NEVER), np.full(size, -1)
    np.minimum.at(begins, key, first)
    np.maximum.at(last, key, 2 * first - is_home)
    found = np.flatnonzero(last >= 0)
    node, first = nodes[found // placed.num_devices], begins[found]
    return Sends(
        node=node,
        destination=found % placed.num_devices,
        begin=np.maximum(place[node], first - placed.window),
        end=first - 1,
        last=last[found],
    )


def all_sends(placed: Placed) -> Sends:
    """Sends of all nodes."""
    num_nodes, num_uses = placed.graph.num_nodes, len(placed.graph.uses.source)
    return sends_of(placed, np.arange(num_nodes), np.arange(num_uses))
