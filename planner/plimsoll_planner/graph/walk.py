"""Seconds of a step as the engine runs it: every device in the one order.

In: a placed graph, its sends, the seconds of each. Out: seconds until the last node and
send are done. Called by `place` for every candidate.

Clocks of devices, advanced place by place:

    node at place p     its device's clock goes on by the node's seconds
    send that begins    it is under way from the later clock of both sides, for
                        latency + bytes / bandwidth; neither waits
    send that ends      both clocks are at least at its arrival

Links are never busy, which is a simplification; the optimizer's step is not in it.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.graph.arrays import Floats, Ints
from plimsoll_planner.graph.transfers import Placed, Sends


def walked_s(placed: Placed, sends: Sends, send_s: Floats) -> float:
    """Seconds until all nodes and sends are done."""
    order = np.argsort(placed.place)
    own: list[float] = placed.graph.seconds[order].tolist()
    where: list[int] = placed.device[order].tolist()
    sources: list[int] = placed.device[sends.node].tolist()
    destinations: list[int] = sends.destination.tolist()
    takes: list[float] = send_s[sends.node].tolist()
    begins, ends = by_place(sends.begin, len(own)), by_place(sends.end, len(own))
    clock, arrives = [0.0] * placed.num_devices, [0.0] * len(takes)
    for place, seconds in enumerate(own):
        clock[where[place]] += seconds
        for send in begins[place]:
            both = clock[sources[send]], clock[destinations[send]]
            arrives[send] = max(both) + takes[send]
        for send in ends[place]:
            for side in (sources[send], destinations[send]):
                clock[side] = max(clock[side], arrives[send])
    return max(clock)


def by_place(places: Ints, num_places: int) -> list[list[int]]:
    """Sends that have each place."""
    order = np.argsort(places, kind="stable")
    ends = np.cumsum(np.bincount(places, minlength=num_places)).tolist()
    found, first = order.tolist(), 0
    lists: list[list[int]] = []
    for end in ends:
        lists.append(found[first:end])
        first = end
    return lists
