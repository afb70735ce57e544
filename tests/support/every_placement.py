"""Every placement of a small graph: all devices of all groups, in all orders or one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from plimsoll_planner.graph.arrays import graph_of
from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.graph.levels import levels_of, send_seconds
from plimsoll_planner.graph.order import list_order, positions
from plimsoll_planner.graph.transfers import Placed, all_sends
from plimsoll_planner.graph.walk import walked_s
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.offer import Link
from tests.support.placement_truth import Truth


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One placement."""

    peak_bytes: int
    makespan_s: float


def in_every_order(
    profile: GraphProfile, num_devices: int, window: int, link: Link
) -> Iterator[Found]:
    """Yield every placement in every order, by the slow definitions."""
    for device in every_device(profile, num_devices):
        for order in every_order(profile):
            truth = Truth(profile, device, order)
            curve = truth.curve(num_devices, window)
            yield Found(
                peak_bytes=max(map(max, curve)),
                makespan_s=truth.seconds(num_devices, window, link),
            )


def in_list_order(
    profile: GraphProfile, num_devices: int, window: int, link: Link
) -> Iterator[Found]:
    """Yield every placement in the order of its list schedule."""
    graph = graph_of(profile)
    send_s = send_seconds(graph, link)
    bottom = levels_of(graph, send_s).bottom
    for device in every_device(profile, num_devices):
        where = np.array(device)[graph.group]
        placed = Placed(
            graph=graph,
            device=where,
            place=positions(list_order(graph, where, bottom, send_s)),
            num_devices=num_devices,
            window=window,
        )
        yield Found(
            peak_bytes=int(Curve(placed).peak.max()),
            makespan_s=walked_s(placed, all_sends(placed), send_s),
        )


def every_device(profile: GraphProfile, num_devices: int) -> Iterator[list[int]]:
    """Yield the devices of all groups; the first group stands on the first device."""
    rest = itertools.product(range(num_devices), repeat=profile.num_groups - 1)
    yield from ([0, *others] for others in rest)


def every_order(profile: GraphProfile) -> Iterator[list[int]]:
    """Yield every order that respects the edges."""
    before: list[set[int]] = [set() for _ in range(profile.num_nodes)]
    for source, target in zip(profile.edges.source, profile.edges.target, strict=True):
        before[target].add(source)

    def longer(done: list[int]) -> Iterator[list[int]]:
        if len(done) == profile.num_nodes:
            yield done
        for node in range(profile.num_nodes):
            if node not in done and before[node] <= set(done):
                yield from longer([*done, node])

    yield from longer([])
