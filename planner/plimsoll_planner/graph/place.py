"""Placement of a graph on K devices that are alike: the way in.

In: a `GraphProfile`, K, bytes of a device, the link between two. Out: a
`PlacementPlan`. Called by the engine of graphs, the benchmark, and whoever asks.

[1] Heuristics place the groups: by earliest finish, by chains, all on one device.
[2] Each placement has its order by list scheduling, and its exact curve. If it does not
    fit, groups move until it does (`repair`), unless a faster one fits already.
[3] If none fits, all again in the order of the profile, in which the model was
    captured: slower, and often with less alive.
[4] Each placement of a small graph is bettered by one group at a time (`descent`).
[5] Of those that fit the one that is done first is taken; if none fits, the one with
    the least peak.

Verdicts: *fits*, the exact peaks are within the capacity; *fails*, a lower bound is
above it (`bounds`); anything else is *undecided*, since placement is heuristic. All of
it is O((V + E) log V) for a given number of devices and rounds, and equal questions
have equal answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.graph.arrays import Floats, Graph, Ints, graph_of
from plimsoll_planner.graph.bounds import bounds_of
from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.graph.descent import descended
from plimsoll_planner.graph.earliest import earliest
from plimsoll_planner.graph.fullest import peaks_of
from plimsoll_planner.graph.levels import Levels, levels_of, send_seconds
from plimsoll_planner.graph.mapping import mapped
from plimsoll_planner.graph.order import list_order, positions
from plimsoll_planner.graph.placed import send_columns
from plimsoll_planner.graph.repair import repaired
from plimsoll_planner.graph.transfers import Placed, all_sends
from plimsoll_planner.graph.walk import walked_s
from plimsoll_planner.records.bounds import LARGEST_INTEGER
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.placement_plan import PlacementPlan

Heuristic = Callable[[Graph, Levels, Floats, int], Ints]
MOST_DEVICES = 4096
MOST_CELLS = 2**27
"""Devices times nodes; each has 32 bytes in the curves, 4 GiB in all."""
PLACES_OF_DEVICE = 8
"""Of the send window: nodes of each device that may run while a value is under way.

On random towers of 1e5 nodes a longer one won nothing; half of it made a step 0.3 %
longer, an eighth of it 8 %."""

MOST_VISITS = 10_000
"""Of nodes in one descent; graphs of which a sweep takes more have none."""


def on_one(graph: Graph, levels: Levels, send_s: Floats, num_devices: int) -> Ints:
    """All groups on the first device: nothing is sent."""
    del levels, send_s, num_devices
    return np.zeros(graph.num_groups, dtype=np.int64)


HEURISTICS: dict[str, Heuristic] = {
    "earliest finish": earliest,
    "chains": mapped,
    "one device": on_one,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A placement with its curve and its seconds."""

    method: str
    curve: Curve
    fits: bool
    makespan_s: float


def place(
    profile: GraphProfile,
    num_devices: int,
    *,
    capacity_bytes: int,
    link: Link,
    send_window: int | None = None,
) -> PlacementPlan:
    """Place a graph.

    Args:
        profile: the graph with its costs.
        num_devices: K.
        capacity_bytes: of tensors on each device.
        link: between any two devices.
        send_window: places that a send may begin before its value is used; None: 8
            for each device.

    Raises:
        InvalidFieldError: there is no device, more than can be judged, or no window.
        CannotPlanError: nobody knows the seconds of a node.
    """
    most = most_devices(profile)
    if not 1 <= num_devices <= most:
        rule = f"from 1 to {most} devices for {profile.num_nodes} nodes"
        raise InvalidFieldError("num_devices", num_devices, rule)
    window = PLACES_OF_DEVICE * num_devices if send_window is None else send_window
    if window < 1:
        raise InvalidFieldError("send_window", window, "at least 1 place")
    graph = graph_of(profile)
    search = Search(graph, num_devices, capacity_bytes, link, window)
    best = search.best()
    placed = best.curve.placed
    bounds = bounds_of(graph, num_devices)
    verdict = Verdict.UNDECIDED
    if best.fits:
        verdict = Verdict.FITS
    elif bounds.peak_bytes > capacity_bytes:
        verdict = Verdict.FAILS
    return PlacementPlan(
        graph_digest=profile.graph_digest,
        num_devices=num_devices,
        capacity_bytes=capacity_bytes,
        link=link,
        send_window=window,
        method=best.method,
        devices=tuple(best.curve.group_device.tolist()),
        order=tuple(np.argsort(placed.place).tolist()),
        sends=send_columns(placed),
        peaks=peaks_of(best.curve, profile),
        makespan_s=best.makespan_s,
        bounds=bounds,
        verdict=verdict,
    )


def most_devices(profile: GraphProfile) -> int:
    """Devices up to which a placement can be judged, and no peak is too large a number.

    A device holds all bytes at the most, and copies of what it sends to each other one.
    """
    nodes = profile.nodes
    pairs = zip(nodes.output_bytes, nodes.is_contiguous, strict=True)
    packed = sum(num_bytes for num_bytes, is_contiguous in pairs if not is_contiguous)
    most_sent = (LARGEST_INTEGER - profile.all_bytes) // max(packed, 1)
    return min(MOST_DEVICES, MOST_CELLS // profile.num_nodes, 1 + most_sent)


class Search:
    """Candidates of one question."""

    def __init__(
        self,
        graph: Graph,
        num_devices: int,
        capacity_bytes: int,
        link: Link,
        window: int,
    ) -> None:
        """Levels are found once."""
        self.graph, self.num_devices, self.window = graph, num_devices, window
        self.capacity_bytes = capacity_bytes
        self.send_s = send_seconds(graph, link)
        self.levels = levels_of(graph, self.send_s)

    def best(self) -> Candidate:
        """The candidate to take: [5]."""
        devices = {
            method: heuristic(self.graph, self.levels, self.send_s, self.num_devices)
            for method, heuristic in HEURISTICS.items()
        }  # [1]
        found = self.repaired(
            [
                self.candidate(method, groups, self.list_order(groups))
                for method, groups in devices.items()
            ]
        )
        if not any(candidate.fits for candidate in found):  # [3]
            in_order = np.arange(self.graph.num_nodes)
            found += self.repaired(
                [
                    self.candidate(f"{method}, captured order", groups, in_order)
                    for method, groups in devices.items()
                ]
            )
        found += self.bettered(devices)
        fitting = [candidate for candidate in found if candidate.fits]
        if fitting:
            return min(fitting, key=lambda one: one.makespan_s)
        return min(found, key=lambda one: int(one.curve.peak.max()))

    def repaired(self, candidates: list[Candidate]) -> list[Candidate]:
        """Candidates, repaired where that may be of use: [2].

        Fastest first; one that is slower than another that fits stays as it is, for
        moves hardly ever make it faster. One device is never repaired: nearly all of
        it would have to move.
        """
        by_speed = sorted(candidates, key=lambda one: one.makespan_s)
        found: list[Candidate] = []
        for candidate in by_speed:
            needs = not candidate.fits and candidate.curve.placed.device.any()
            if needs and not any(one.fits for one in found):
                found.append(self.repair(candidate))
            else:
                found.append(candidate)
        return found

    def bettered(self, devices: dict[str, Ints]) -> list[Candidate]:
        """Placements of a small graph after descents, none of a large one: [4]."""
        sweep = self.graph.num_groups * (self.num_devices - 1)
        most_asked = MOST_VISITS // self.graph.num_nodes
        if not 0 < sweep <= most_asked:
            return []

        def judge(groups: Ints) -> tuple[int, float]:
            found = self.candidate("", groups, self.list_order(groups))
            over = int(found.curve.peak.max()) - self.capacity_bytes
            return max(over, 0), found.makespan_s

        found: list[Candidate] = []
        for method, start in devices.items():
            groups = descended(start, self.num_devices, judge, most_asked)
            order = self.list_order(groups)
            found.append(self.candidate(f"{method}, descent", groups, order))
        return found

    def list_order(self, groups: Ints) -> Ints:
        """Order of a list schedule of a placement."""
        device = groups[self.graph.group]
        return list_order(self.graph, device, self.levels.bottom, self.send_s)

    def candidate(self, method: str, groups: Ints, order: Ints) -> Candidate:
        """A placement in a given order, as it is."""
        placed = Placed(
            graph=self.graph,
            device=groups[self.graph.group],
            place=positions(order),
            num_devices=self.num_devices,
            window=self.window,
        )
        return self.judged(method, Curve(placed))

    def repair(self, candidate: Candidate) -> Candidate:
        """A candidate after its groups have moved."""
        repaired(candidate.curve, self.send_s, self.capacity_bytes)
        return self.judged(f"{candidate.method}, repaired", candidate.curve)

    def judged(self, method: str, curve: Curve) -> Candidate:
        """Candidate of a curve."""
        placed = curve.placed
        seconds = walked_s(placed, all_sends(placed), self.send_s)
        fits = bool(curve.peak.max() <= self.capacity_bytes)
        return Candidate(method=method, curve=curve, fits=fits, makespan_s=seconds)
