"""Devices by earliest finish: each node goes where it is done first.

In: a graph, its levels, the link, K devices. Out: the device of each group. Called by
`place` as one of the heuristics.

Nodes come by falling bottom level, as in HEFT (Topcuoglu et al., 2002), without filling
gaps. A group stands where its first node goes. A node is done first either on a device
of one of its inputs, or on the device that is free first: on all that have none of its
inputs they arrive at the same time. So a node costs its degree and log K, not K.
"""

from __future__ import annotations

import heapq

import numpy as np

from plimsoll_planner.graph.arrays import Floats, Graph, Ints
from plimsoll_planner.graph.levels import Levels


def earliest(graph: Graph, levels: Levels, send_s: Floats, num_devices: int) -> Ints:
    """Device of each group."""
    before, group = graph.before.lists(), graph.group.tolist()
    own, sends = graph.seconds.tolist(), send_s.tolist()
    device, done = [-1] * graph.num_groups, [0.0] * graph.num_nodes
    free = [0.0] * num_devices
    first_free = [(0.0, one) for one in range(num_devices)]
    by_level = np.lexsort((np.arange(graph.num_nodes), -levels.bottom))
    for node in by_level.tolist():
        arrived = arrivals(before[node], group, device, done, sends)
        where = device[group[node]]
        if where < 0:
            while first_free[0][0] != free[first_free[0][1]]:
                heapq.heappop(first_free)  # it has had work since
            choices = {*(device[group[one]] for one in before[node])}
            choices.add(first_free[0][1])
            where = min(
                choices,
                key=lambda one: (max(free[one], ready(arrived, one)), free[one], one),
            )
            device[group[node]] = where
        done[node] = max(free[where], ready(arrived, where)) + own[node]
        if done[node] != free[where]:
            free[where] = done[node]
            heapq.heappush(first_free, (free[where], where))
    return np.array(device)


Arrivals = list[tuple[int, float, float]]
"""Device of an input, seconds at which it is there, and on all others."""


def arrivals(
    inputs: list[int],
    group: list[int],
    device: list[int],
    done: list[float],
    sends: list[float],
) -> Arrivals:
    """Where and when each input of a node is."""
    return [(device[group[i]], done[i], done[i] + sends[i]) for i in inputs]


def ready(arrived: Arrivals, device: int) -> float:
    """Seconds at which all inputs are on a device."""
    latest = 0.0
    for where, here, elsewhere in arrived:
        latest = max(latest, here if where == device else elsewhere)
    return latest
