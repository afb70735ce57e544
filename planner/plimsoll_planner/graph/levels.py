"""Longest paths through a graph.

In: a `Graph` and the link between devices. Out: for each node its top level (longest
way from a start to the node, in seconds, without it) and its bottom level (longest way
from the node to an end, with it), with what is sent on each edge or without. Called by
the heuristics of placement and by the bounds.

Source: ParDNN (Qararyah et al., 2020) for levels with communication.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll_planner.graph.arrays import Floats, Graph, Rows, rows
from plimsoll_planner.records.offer import Link


@dataclass(frozen=True, kw_only=True, slots=True)
class Levels:
    """Levels of all nodes, in seconds."""

    top: Floats
    bottom: Floats

    @property
    def length_s(self) -> float:
        """Longest path."""
        return float(self.bottom.max())


def send_seconds(graph: Graph, link: Link) -> Floats:
    """Seconds to send each node's value to one other device."""
    return link.latency_s + graph.output_bytes / link.bandwidth_bytes_per_s


def levels_of(graph: Graph, edge_s: Floats) -> Levels:
    """Levels by all edges, where those out of node i take `edge_s[i]`."""
    return levels_by(graph, graph.after, edge_s)


def critical_path_s(graph: Graph) -> float:
    """Longest path of values, with nothing to send.

    An edge that carries no value is not in it: if its ends stand on two devices, the
    second need not wait, for what it may overwrite has been sent.
    """
    is_read = ~graph.is_addition
    source, target = graph.uses.source[is_read], graph.uses.target[is_read]
    reads = rows(graph.num_nodes, source, target)
    levels = levels_by(graph, reads, np.zeros(graph.num_nodes))
    return float(levels.bottom.max())


def levels_by(graph: Graph, edges: Rows, edge_s: Floats) -> Levels:
    """Levels by some edges."""
    after, own, on_edge = edges.lists(), graph.seconds.tolist(), edge_s.tolist()
    bottom, top = [0.0] * graph.num_nodes, [0.0] * graph.num_nodes
    for node in range(graph.num_nodes - 1, -1, -1):
        way, edge = 0.0, on_edge[node]
        for target in after[node]:
            way = max(way, bottom[target] + edge)
        bottom[node] = way + own[node]
    for node, targets in enumerate(after):
        way = top[node] + own[node] + on_edge[node]
        for target in targets:
            top[target] = max(top[target], way)
    return Levels(top=np.array(top), bottom=np.array(bottom))
