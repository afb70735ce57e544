"""Sends that follow from a placement and an order.

In: a graph, the device of each group, the place of each node. Out: `Sends`. Called by
`place`, `walk` and `actions`; `curve` counts the same for some nodes at a time.

A value is sent to a device once, for all its uses there. Let f be the place of the
first use there, w the window, p the place of the node that returns the value:

    begin = max(p, f - w)      after that node both sides begin
    end   = f - 1              after that node both sides wait for the end

A gradient has no use with a place: it is added to its parameter's as soon as it is
there. It begins at p, and f is the least of p + w, the number of nodes, and the place
of the first later node that holds a storage of it, for that one may write into it.
Readers need no such rule: edges put them before whoever overwrites what they read.
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
    """Moment of the last node that reads the copy; -1: none does; see `curve`."""


def sends_of(placed: Placed, nodes: Ints, uses: Ints) -> Sends:
    """Sends of the values of some nodes; `uses` are all of theirs."""
    graph, place = placed.graph, placed.place
    source, target = graph.uses.source[uses], graph.uses.target[uses]
    destination = placed.device[target]
    is_sent = destination != placed.device[source]
    source, target = source[is_sent], target[is_sent]
    is_addition = graph.is_addition[uses][is_sent]
    wanted = place[target]
    wanted[is_addition] = wanted_at(placed, source[is_addition])
    local = np.searchsorted(nodes, source) if len(nodes) < graph.num_nodes else source
    key = local * placed.num_devices + destination[is_sent]
    size = len(nodes) * placed.num_devices
    first, last = np.full(size, NEVER), np.full(size, -1)
    np.minimum.at(first, key, wanted)
    np.maximum.at(last, key, np.where(is_addition, -1, 2 * wanted))
    found = np.flatnonzero(first < NEVER)
    node, first = nodes[found // placed.num_devices], first[found]
    return Sends(
        node=node,
        destination=found % placed.num_devices,
        begin=np.maximum(place[node], first - placed.window),
        end=first - 1,
        last=last[found],
    )


def wanted_at(placed: Placed, gradients: Ints) -> Ints:
    """Place before which the send of each gradient to its parameter ends."""
    graph, place = placed.graph, placed.place
    wanted = np.minimum(place[gradients] + placed.window, graph.num_nodes)
    counts = graph.written.first[gradients + 1] - graph.written.first[gradients]
    which = np.repeat(np.arange(len(gradients)), counts)
    storage = graph.written.target[graph.written.of(gradients)]
    # Storage and place in one number, so that the next holder is the next number.
    pairs = graph.writers.of(np.unique(storage))
    width = graph.num_nodes + 1
    keys = graph.writers.source[pairs] * width + place[graph.writers.target[pairs]]
    keys = np.append(np.sort(keys), NEVER)
    own = storage * width + place[gradients][which]
    following = keys[np.searchsorted(keys, own, side="right")] - storage * width
    np.minimum.at(wanted, which, following)
    return wanted


def all_sends(placed: Placed) -> Sends:
    """Sends of all nodes."""
    num_nodes, num_uses = placed.graph.num_nodes, len(placed.graph.uses.source)
    return sends_of(placed, np.arange(num_nodes), np.arange(num_uses))
