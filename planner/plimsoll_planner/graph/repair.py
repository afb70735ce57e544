"""Moves that bring every device under its capacity, in one order that stays.

In: the curve of a placement. Out: whether all fit; the curve follows. Called by `place`
for candidates that do not fit by themselves.

[1] Take the device that is fullest, at the moment of its peak, and the one that is
    emptiest then.
[2] A unit is a group of the full device with bytes there, states or storages, and with
    it the groups that use its values later on the same device: without them a copy
    would come back.
[3] Move units by rising seconds of added communication and work for each byte, until
    what is over is gone, the other device is full, or a share of the capacity has
    moved; what stands beside a moved unit is scored again.
[4] A group that has moved three times stays. Count anew; again.

Judged by places of one order and never by simulated times: a repair that scheduled anew
after each round took 109 s on 1e5 nodes and did not end. A heuristic: that it does not
succeed proves nothing.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from plimsoll_planner.graph.arrays import Flags, Floats, Graph, Ints
from plimsoll_planner.graph.curve import Curve

MOST_ROUNDS = 1000
MOST_MOVES = 3
"""Of one group."""
ROUND_SHARE = 0.01
"""Of the capacity, that moves in a round at least, if there is so much."""
ROOM_SHARE = 0.99
"""Of the capacity, up to which a device is filled."""
WORK_SHARE = 0.1
"""Of a unit's own seconds, that count as if they were communication."""
LEAST_S = 1e-6
"""That any move is taken to cost."""
MOST_UNITS = 1024
"""Looked at in a round, largest first."""


def repaired(curve: Curve, send_s: Floats, capacity_bytes: int) -> bool:
    """Move groups until all devices fit; whether they do."""
    graph = curve.placed.graph
    neighbours = Neighbours(
        graph=graph,
        place=curve.placed.place,
        send_s=send_s,
        group_work=np.bincount(graph.group, weights=graph.seconds).tolist(),
    )
    num_moves = np.zeros(graph.num_groups, dtype=np.int64)
    for _ in range(MOST_ROUNDS):
        full = int(curve.peak.argmax())  # [1]
        if curve.peak[full] <= capacity_bytes:
            return True
        if curve.placed.num_devices == 1:
            break
        there = curve.live[:, curve.moment[full]].copy()
        there[full] = np.iinfo(np.int64).max
        empty = int(there.argmin())
        over = int(curve.peak[full]) - capacity_bytes
        moves = Round(
            curve=curve,
            neighbours=neighbours,
            full=full,
            empty=empty,
            freed=bytes_there(curve, full, num_moves < MOST_MOVES),
        )
        chosen = moves.chosen(
            max(over, int(ROUND_SHARE * capacity_bytes)),
            int(ROOM_SHARE * capacity_bytes) - int(there[empty]),
        )
        if not len(chosen):
            break
        num_moves[chosen] += 1  # [4]
        curve.move(chosen, empty)
    return False


def bytes_there(curve: Curve, device: int, may_move: Flags) -> Ints:
    """Bytes of each group on a device at its peak, states and storages."""
    graph, moment = curve.placed.graph, curve.moment[device]
    is_alive = (curve.birth[graph.holds.target] <= moment) & (
        curve.death[graph.holds.target] >= moment
    )
    storages, first = np.unique(graph.holds.target[is_alive], return_index=True)
    groups = graph.group[graph.holds.source[is_alive][first]]
    freed = graph.group_state.copy()
    np.add.at(freed, groups, graph.storage_bytes[storages])
    freed[(curve.group_device != device) | ~may_move] = 0
    return freed


Neighbour = tuple[int, float, int]
"""Another group, seconds to send between the two, and the place of the use if it is the
other group's, else -1."""


@dataclass(kw_only=True, slots=True)
class Neighbours:
    """Neighbours of groups, looked up when a group is first asked for."""

    graph: Graph
    place: Ints
    send_s: Floats
    group_work: list[float]
    """Seconds of each group."""
    found: dict[int, list[Neighbour]] = field(
        default_factory=dict[int, list[Neighbour]]
    )

    def of(self, group: int) -> list[Neighbour]:
        """Neighbours of a group, without itself."""
        if group not in self.found:
            self.found[group] = [
                one for one in self._looked_up(group) if one[0] != group
            ]
        return self.found[group]

    def _looked_up(self, group: int) -> list[Neighbour]:
        """Neighbours of a group, with itself as well."""
        graph = self.graph
        first = graph.members.first
        nodes = graph.members.target[first[group] : first[group + 1]]
        out, into = graph.uses.of(nodes), graph.users.of(nodes)
        targets, sources = graph.uses.target[out], graph.users.target[into]
        is_addition = graph.is_addition[out]
        places = np.where(is_addition, -1, self.place[targets])
        return [
            *zip(
                graph.group[targets].tolist(),
                self.send_s[graph.uses.source[out]].tolist(),
                places.tolist(),
                strict=True,
            ),
            *zip(
                graph.group[sources].tolist(),
                self.send_s[sources].tolist(),
                [-1] * len(sources),
                strict=True,
            ),
        ]


@dataclass(kw_only=True, slots=True)
class Round:
    """Choice of groups that move from one device to another, at one moment."""

    curve: Curve
    neighbours: Neighbours
    full: int
    empty: int
    freed: Ints
    """Bytes of each group that may move."""
    moved: set[int] = field(default_factory=set[int])

    def chosen(self, wanted: int, room: int) -> Ints:
        """Groups to move, with as many bytes as wanted and no more than there is room.

        A score may have fallen since it was pushed; then there is a newer one.
        """
        largest = np.argsort(-self.freed, kind="stable")[:MOST_UNITS]
        groups = largest[self.freed[largest] > 0].tolist()
        heap = [(self.score(self.unit(group)), group) for group in groups]
        heapq.heapify(heap)
        got = 0
        while heap and got < wanted:
            score, group = heapq.heappop(heap)
            if group in self.moved:
                continue
            unit = self.unit(group)
            if (now := self.score(unit)) > score:
                heapq.heappush(heap, (now, group))
                continue
            num_bytes = self.bytes_of(unit)
            if got + num_bytes > room:
                continue
            self.moved.update(unit)
            got += num_bytes
            beside = {it[0] for one in unit for it in self.neighbours.of(one)}
            for other in sorted(beside - self.moved):
                if self.freed[other]:
                    heapq.heappush(heap, (self.score(self.unit(other)), other))
        return np.array(sorted(self.moved), dtype=np.int64)

    def unit(self, group: int) -> list[int]:
        """A group and those that use its values later, on its device: [2]."""
        now, device = self.curve.moment[self.full] // 2, self.curve.group_device
        later = {
            other
            for other, _, place in self.neighbours.of(group)
            if place > now and device[other] == self.full and other not in self.moved
        }
        return [group, *sorted(later)]

    def bytes_of(self, unit: list[int]) -> int:
        """Bytes that leave the full device with a unit."""
        return sum(int(self.freed[one]) for one in unit)

    def score(self, unit: list[int]) -> float:
        """Seconds that a unit costs for each byte that it frees."""
        inside, device = set(unit), self.curve.group_device
        added_s, work_s = 0.0, 0.0
        for one in unit:
            work_s += self.neighbours.group_work[one]
            for other, seconds, _ in self.neighbours.of(one):
                if other in inside:
                    continue
                if other in self.moved or device[other] == self.empty:
                    added_s -= seconds
                elif device[other] == self.full:
                    added_s += seconds
        cost = max(added_s, 0.0) + WORK_SHARE * work_s + LEAST_S
        return cost / max(self.bytes_of(unit), 1)
