"""Devices by earliest finish: each node goes where it is done first.

In: a graph, its levels, the link, K devices. Out: the device of each group. Called by
`place` as one of the heuristics.

Nodes come by falling bottom level, as in HEFT (Topcuoglu et al., 2002), without filling
gaps; what a node is sent counts on top. A group stands where its first node goes. The
best device has one of the node's inputs, or is the one that is free first: on all that
have none of its inputs they arrive at the same time. So a node looks at the devices of
its inputs and at one more, not at K.
"""

from __future__ import annotations

import heapq

import numpy as np

from plimsoll_planner.graph.arrays import Floats, Graph, Ints
from plimsoll_planner.graph.levels import Levels

SENDS_WEIGHT = 4.0
"""Of the seconds of a node's own sends, on top of the moment at which it is done: links
are not free for all in truth. On towers of 1e5 nodes it takes a half to two thirds of
the sends away, and a step is from 10 % shorter to 0.3 % longer."""


def earliest(graph: Graph, levels: Levels, send_s: Floats, num_devices: int) -> Ints:
    """Device of each group."""
    before = graph.before.lists()
    group: list[int] = graph.group.tolist()
    own: list[float] = graph.seconds.tolist()
    sends: list[float] = send_s.tolist()
    device, done = [-1] * graph.num_groups, [0.0] * graph.num_nodes
    free = [0.0] * num_devices
    first_free = [(0.0, one) for one in range(num_devices)]
    by_level = np.lexsort((np.arange(graph.num_nodes), -levels.bottom))
    nodes: list[int] = by_level.tolist()
    for node in nodes:
        arrived: Arrivals = [
            (device[group[i]], done[i], done[i] + sends[i], sends[i])
            for i in before[node]
        ]
        where = device[group[node]]
        if where < 0:
            while first_free[0][0] != free[first_free[0][1]]:
                heapq.heappop(first_free)  # it has had work since
            choices = {first_free[0][1], *(one[0] for one in arrived)}
            _, _, where = min(
                (cost(arrived, one, free), free[one], one) for one in choices
            )
            device[group[node]] = where
        done[node] = max(free[where], ready(arrived, where)) + own[node]
        if done[node] != free[where]:
            free[where] = done[node]
            heapq.heappush(first_free, (free[where], where))
    return np.array(device)


Arrivals = list[tuple[int, float, float, float]]
"""Of each input its device, seconds at which it is there, seconds at which it is on all
others, and seconds to send it."""


def ready(arrived: Arrivals, device: int) -> float:
    """Seconds at which all inputs are on a device."""
    latest = 0.0
    for where, here, elsewhere, _ in arrived:
        latest = max(latest, here if where == device else elsewhere)
    return latest


def cost(arrived: Arrivals, device: int, free: list[float]) -> float:
    """Seconds at which a node may begin on a device, and a weight of what is sent."""
    sent_s = sum(one[3] for one in arrived if one[0] != device)
    return max(free[device], ready(arrived, device)) + SENDS_WEIGHT * sent_s
