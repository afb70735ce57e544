"""One order of all nodes, by list scheduling.

In: a graph, the device of each node, and a priority, usually the bottom level. Out: the
order. Called by `place` for every candidate.

Each device runs, of its nodes that are ready, the one of highest priority; a value that
crosses takes latency + bytes / bandwidth, and links are never busy. Nodes are then
ordered by when they began. A node begins behind all before it, or together with those
that take no time; those have lower numbers, so the order respects every edge.
"""

from __future__ import annotations

import heapq

import numpy as np

from plimsoll_planner.graph.arrays import Floats, Graph, Ints


def list_order(graph: Graph, device: Ints, priority: Floats, send_s: Floats) -> Ints:
    """Nodes in the order in which a list schedule begins them."""
    started = started_at(graph, device, priority, send_s)
    return np.lexsort((np.arange(graph.num_nodes), started))


def positions(order: Ints) -> Ints:
    """Place of each node in an order."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def started_at(graph: Graph, device: Ints, priority: Floats, send_s: Floats) -> Floats:
    """Seconds at which each node begins.

    Events are (time, kind, node): 0, the node is ready; 1, it has run. All events of a
    moment are looked at before a device takes up a node.
    """
    after = graph.after.lists()
    where: list[int] = device.tolist()
    own: list[float] = graph.seconds.tolist()
    sends: list[float] = send_s.tolist()
    rank: list[float] = (-priority).tolist()
    missing = np.diff(graph.before.first).tolist()
    ready_at, started = [0.0] * len(own), [0.0] * len(own)
    waiting: list[list[tuple[float, int]]] = [[] for _ in range(max(where) + 1)]
    is_busy = [False] * len(waiting)
    events = [(0.0, 0, node) for node, count in enumerate(missing) if not count]
    heapq.heapify(events)
    while events:
        now = events[0][0]
        touched: set[int] = set()
        while events and events[0][0] == now:
            _, kind, node = heapq.heappop(events)
            touched.add(where[node])
            if kind == 0:
                heapq.heappush(waiting[where[node]], (rank[node], node))
                continue
            is_busy[where[node]] = False
            crossed = now + sends[node]
            for target in after[node]:
                at = now if where[target] == where[node] else crossed
                ready_at[target] = max(ready_at[target], at)
                missing[target] -= 1
                if not missing[target]:
                    heapq.heappush(events, (ready_at[target], 0, target))
        for one in sorted(touched):
            if waiting[one] and not is_busy[one]:
                _, node = heapq.heappop(waiting[one])
                is_busy[one], started[node] = True, now
                heapq.heappush(events, (now + own[node], 1, node))
    return np.array(started)
