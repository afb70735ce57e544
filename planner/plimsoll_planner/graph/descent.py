"""Placement of a small graph, bettered by one group at a time.

In: devices of groups, and a judge. Out: devices that no single move betters, unless the
judge has been asked too often before. Called by `place` where a graph is so small that
whole sweeps are cheap: of 60 random graphs of 9 nodes on 2 devices the fastest of all
placements was found for 56; for 41 by the heuristics alone, before sends had a weight.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_planner.graph.arrays import Ints

Judge = Callable[[Ints], tuple[int, float]]
"""Devices of groups -> bytes over the capacity, seconds; less is better, in order."""


def descended(groups: Ints, num_devices: int, judge: Judge, most_asked: int) -> Ints:
    """Devices of groups after moves that each are for the better."""
    best, least = groups.copy(), judge(groups)
    asked, since_better = 0, 0
    while since_better < len(best):
        for group in range(len(best)):
            since_better += 1
            for device in range(num_devices):
                if device == best[group]:
                    continue
                if asked == most_asked:
                    return best
                asked += 1
                tried = best.copy()
                tried[group] = device
                if (found := judge(tried)) < least:
                    best, least, since_better = tried, found, 0
            if since_better >= len(best):
                break
    return best
