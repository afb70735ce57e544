"""Bytes that every device holds over one order of nodes: exact, and no clock in it.

In: a placed graph. Out: `Curve`. Called by `repair`, `place` and `fullest`. The engine
follows the same rules to the letter, by the lists of `actions`.

Rules of life. Place p is that of a node in the order, n their number. There are two
moments at each place: 2p, when the node runs, and 2p + 1, when sends begin and end
behind it; 2n is the optimizer's step.

 1. A parameter, its gradient and its optimizer state stand on the device of the
    parameter's group, at all moments.
 2. A storage is on the device of its group. It is born at 2p of the first node that
    holds it, and dies behind the last moment of any of them.
 3. The last moment of a node is the largest of: 2p itself; 2p' of each use on its
    device; 2 end + 1 of each send of its value; 2n, if the value is kept.
 4. Storages of parameters are never counted: rule 1 has them.
 5. A received copy is born at 2 begin + 1 of its send, whole, and dies behind the
    largest of 2 end + 1 and 2p' of each node that reads it on that device. Its bytes
    are those that are sent, also if the value was a view.
 6. What a sender has to copy first is held from 2 begin + 1 to 2 end + 1, one copy for
    each send.
 7. The workspace of a node is held at 2p and at no other moment. It is the packed one
    if all that it reads with gaps is received, and so has none: operators first copy
    what has gaps. If only some of it is received, it is the mixed one, which alone of
    all bytes here is the most of several cases.
 8. A gradient is added to that of its parameter at 2p, on its device, and at
    2 end + 1 of its send on another. This takes nothing.
 9. At 2n a device holds on top the most that one of its parameters takes as it is
    stepped: the optimizer goes parameter by parameter.
10. Nothing dies within a moment: all that is there at any time of it is counted.

When sends begin and end: `transfers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from plimsoll_planner.graph.arrays import Graph, Ints
from plimsoll_planner.graph.transfers import Placed, Sends, sends_of


class Kind(IntEnum):
    """Kind of bytes that live for an interval."""

    VALUE = 0
    RECEIVED = 1
    TRANSIENT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Intervals:
    """Entry i: bytes on a device, from one moment to another, both included."""

    device: Ints
    birth: Ints
    death: Ints
    num_bytes: Ints
    kind: Ints
    item: Ints
    """Node that they are of; of values, the storage."""

    def of(self, chosen: Ints) -> Intervals:
        """Some of them."""
        return Intervals(
            device=self.device[chosen],
            birth=self.birth[chosen],
            death=self.death[chosen],
            num_bytes=self.num_bytes[chosen],
            kind=self.kind[chosen],
            item=self.item[chosen],
        )


def joined(parts: list[tuple[Kind, Ints, Ints, Ints, Ints, Ints]]) -> Intervals:
    """Intervals of all parts: (kind, device, birth, death, bytes, item)."""
    kinds = [np.full(len(part[1]), part[0].value) for part in parts]
    columns = [np.concatenate([part[i] for part in parts]) for i in range(1, 6)]
    return Intervals(
        device=columns[0],
        birth=columns[1],
        death=columns[2],
        num_bytes=columns[3],
        kind=np.concatenate(kinds),
        item=columns[4],
    )


def sharing(graph: Graph, nodes: Ints) -> Ints:
    """Nodes, and all that hold a storage with one of them; in order, each once."""
    storages = np.unique(graph.holds.target[graph.holds.of(nodes)])
    others = graph.holders.target[graph.holders.of(storages)]
    return np.unique(np.concatenate([nodes, others]))


def intervals_of(placed: Placed, nodes: Ints) -> Intervals:
    """Intervals of what some nodes return and take; they are closed under `sharing`.

    [1] last moments, [2] storages, [3] copies, [4] workspaces.
    """
    graph, device, place = placed.graph, placed.device, placed.place
    local = index_of(nodes, graph.num_nodes)
    uses = graph.uses.of(nodes)
    sends = sends_of(placed, nodes, uses)
    last = last_moments(placed, nodes, uses, sends)  # [1]
    # [2] Storages: rule 2.
    pairs = graph.holds.of(nodes)
    holder, storage = graph.holds.source[pairs], graph.holds.target[pairs]
    found, first, which = np.unique(storage, return_index=True, return_inverse=True)
    birth, death = (
        np.full(len(found), 2 * graph.num_nodes),
        np.zeros(len(found), np.int64),
    )
    np.minimum.at(birth, which, 2 * place[holder])
    np.maximum.at(death, which, last[local[holder]])
    owner = holder[first]
    # [3] Copies, rule 5, and what senders copy first, rule 6.
    begin, end = 2 * sends.begin + 1, 2 * sends.end + 1
    copied = graph.output_bytes[sends.node]
    packs = np.flatnonzero(graph.packed_bytes[sends.node])
    packed = sends.node[packs]
    # [4] Workspaces: rule 7.
    workspace = workspaces_of(placed, nodes)
    is_busy = workspace > 0
    busy, workspace = nodes[is_busy], workspace[is_busy]
    moment = 2 * place[busy]
    return joined(
        [
            (
                Kind.VALUE,
                device[owner],
                birth,
                death,
                graph.storage_bytes[found],
                found,
            ),
            (
                *(Kind.RECEIVED, sends.destination, begin),
                *(np.maximum(sends.last, end), copied, sends.node),
            ),
            (
                *(Kind.TRANSIENT, device[packed], begin[packs], end[packs]),
                *(graph.packed_bytes[packed], packed),
            ),
            (Kind.TRANSIENT, device[busy], moment, moment, workspace, busy),
        ]
    )


def workspaces_of(placed: Placed, nodes: Ints) -> Ints:
    """Workspace of some nodes, by rule 7."""
    graph, device = placed.graph, placed.device
    pairs = graph.gaps.of(nodes)
    reader, source = graph.gaps.source[pairs], graph.gaps.target[pairs]
    local = index_of(nodes, graph.num_nodes)[reader]
    is_received = device[source] != device[reader]
    are_any, are_all = np.zeros(len(nodes), np.bool_), np.ones(len(nodes), np.bool_)
    np.logical_or.at(are_any, local, is_received)
    np.logical_and.at(are_all, local, is_received)
    received_bytes = np.where(
        are_all, graph.packed_workspace_bytes[nodes], graph.mixed_workspace_bytes[nodes]
    )
    return np.where(are_any, received_bytes, graph.workspace_bytes[nodes])


def last_moments(placed: Placed, nodes: Ints, uses: Ints, sends: Sends) -> Ints:
    """Last moment of the value of some nodes, by rule 3; `uses` are all of theirs."""
    graph, device, place = placed.graph, placed.device, placed.place
    local = index_of(nodes, graph.num_nodes)
    last = np.where(graph.is_kept[nodes], 2 * graph.num_nodes, 2 * place[nodes])
    source, target = graph.uses.source[uses], graph.uses.target[uses]
    is_here = (device[source] == device[target]) & ~graph.is_addition[uses]
    np.maximum.at(last, local[source[is_here]], 2 * place[target[is_here]])
    np.maximum.at(last, local[sends.node], 2 * sends.end + 1)
    return last


def index_of(nodes: Ints, num_nodes: int) -> Ints:
    """Index of each node among some; those of others have no meaning."""
    local = np.empty(num_nodes, dtype=np.int64)
    local[nodes] = np.arange(len(nodes))
    return local


class Curve:
    """Bytes of each device at each moment; follows as groups move.

    `live[d, m]` is rule 1 to 9 of device d at moment m, `peak[d]` its largest, and
    `moment[d]` the first at which it is reached; `birth` and `death` are of storages.
    """

    def __init__(self, placed: Placed) -> None:
        """Count everything once."""
        graph = placed.graph
        self.placed = placed
        self.steps = np.zeros((placed.num_devices, 2 * graph.num_nodes + 2), np.int64)
        self.live = np.zeros((placed.num_devices, 2 * graph.num_nodes + 1), np.int64)
        self.peak = np.zeros(placed.num_devices, dtype=np.int64)
        self.moment = np.zeros(placed.num_devices, dtype=np.int64)
        self.group_device = np.zeros(graph.num_groups, dtype=np.int64)
        self.group_device[graph.group] = placed.device
        self.birth = np.full(len(graph.storage_bytes), -1, dtype=np.int64)
        self.death = np.full(len(graph.storage_bytes), -1, dtype=np.int64)
        self.count(intervals_of(placed, np.arange(graph.num_nodes)), 1)
        self.refresh(np.arange(placed.num_devices))

    def count(self, intervals: Intervals, sign: int) -> None:
        """Add intervals, or take them away."""
        width = self.steps.shape[1]
        row, steps = intervals.device * width, self.steps.reshape(-1)
        np.add.at(steps, row + intervals.birth, sign * intervals.num_bytes)
        np.add.at(steps, row + intervals.death + 1, -sign * intervals.num_bytes)
        is_storage = intervals.kind == Kind.VALUE
        storages = intervals.item[is_storage]
        self.birth[storages] = intervals.birth[is_storage]
        self.death[storages] = intervals.death[is_storage]

    def refresh(self, devices: Ints) -> None:
        """Sum up the curves of some devices."""
        graph = self.placed.graph
        for device in devices.tolist():
            is_here = self.group_device == device
            live = self.live[device]
            np.cumsum(self.steps[device, :-1], out=live)
            live += graph.group_state[is_here].sum()
            live[-1] += graph.group_step[is_here].max(initial=0)
            self.moment[device] = live.argmax()
            self.peak[device] = live[self.moment[device]]

    def move(self, groups: Ints, device: int) -> None:
        """Put groups on another device; what changes is counted anew."""
        graph = self.placed.graph
        nodes = graph.members.target[graph.members.of(groups)]
        sources = graph.users.target[graph.users.of(nodes)]
        readers = graph.gap_readers.target[graph.gap_readers.of(nodes)]
        # A gradient is sent to where the node of its parameter stands.
        near = np.unique(np.concatenate([nodes, sources, readers]))
        touched = sharing(graph, near)
        before = intervals_of(self.placed, touched)
        self.count(before, -1)
        left = self.group_device[groups]  # states alone leave no interval
        self.group_device[groups] = device
        self.placed.device[nodes] = device
        after = intervals_of(self.placed, touched)
        self.count(after, 1)
        changed = np.concatenate([before.device, after.device, left, [device]])
        self.refresh(np.unique(changed))
