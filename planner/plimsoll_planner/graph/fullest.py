"""Peaks of devices and what makes them up; bytes of a device over the order.

In: a placed graph, its curve, the profile. Out: `DevicePeak`s, or points of a curve.
Called by `place`, reports and texts.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.graph.arrays import Ints, integers
from plimsoll_planner.graph.curve import Curve, Intervals, Kind, intervals_of
from plimsoll_planner.graph.transfers import Placed
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.placement_plan import (
    Contributor,
    ContributorKind,
    DevicePeak,
)

MOST_CONTRIBUTORS = 5


def peaks_of(curve: Curve, profile: GraphProfile) -> tuple[DevicePeak, ...]:
    """Peak of each device."""
    every = intervals_of(curve.placed, np.arange(profile.num_nodes))
    devices = range(curve.placed.num_devices)
    return tuple(peak_of(curve, profile, device, every) for device in devices)


def peak_of(
    curve: Curve, profile: GraphProfile, device: int, every: Intervals
) -> DevicePeak:
    """Peak of one device, by kinds of bytes and by its largest parts."""
    moment, graph = int(curve.moment[device]), curve.placed.graph
    is_there = (every.birth <= moment) & (every.death >= moment)
    there = every.of(np.flatnonzero(is_there & (every.device == device)))
    value, received, transient = (
        int(there.num_bytes[there.kind == kind].sum()) for kind in Kind
    )
    if moment == 2 * graph.num_nodes:  # the optimizer's step
        is_here = curve.group_device == device
        transient += int(graph.group_step[is_here].max(initial=0))
    states = state_bytes(profile, curve.placed.device, device)
    return DevicePeak(
        peak_bytes=int(curve.peak[device]),
        place=moment // 2,
        parameter_bytes=states[0],
        gradient_bytes=states[1],
        optimizer_bytes=states[2],
        value_bytes=value,
        received_bytes=received,
        transient_bytes=transient,
        contributors=contributors(curve.placed, there),
    )


def state_bytes(profile: GraphProfile, where: Ints, device: int) -> tuple[int, ...]:
    """Bytes of parameters, of gradients and of optimizer state on a device."""
    parameters = profile.parameters
    is_here = where[integers(parameters.node)] == device
    columns = (
        parameters.parameter_bytes,
        parameters.gradient_bytes,
        parameters.optimizer_bytes,
    )
    return tuple(int(integers(column)[is_here].sum()) for column in columns)


def contributors(placed: Placed, there: Intervals) -> tuple[Contributor, ...]:
    """The largest of some intervals, largest first."""
    graph = placed.graph
    found: list[Contributor] = []
    for one in np.argsort(-there.num_bytes, kind="stable")[:MOST_CONTRIBUTORS].tolist():
        item = int(there.item[one])
        if there.kind[one] == Kind.VALUE:
            item = int(graph.holders.target[graph.holders.first[item]])
        found.append(
            Contributor(
                name=graph.names[item],
                num_bytes=int(there.num_bytes[one]),
                kind=ContributorKind[Kind(there.kind[one]).name],
            )
        )
    return tuple(found)


def over_moments(
    curve: Curve, device: int, most_points: int = 600
) -> list[tuple[int, int]]:
    """First moment and most bytes of each stretch of moments of a device, in order.

    Its peak is among them; every moment is a stretch if there are few.
    """
    live = curve.live[device]
    edges = stretches(len(live), most_points)
    most = np.maximum.reduceat(live, edges[:-1])
    return list(zip(edges[:-1].tolist(), most.tolist(), strict=True))


def stretches(length: int, most: int) -> Ints:
    """Edges of stretches that are about as long as each other, at most so many."""
    return np.linspace(0, length, min(most, length) + 1).astype(np.int64)
