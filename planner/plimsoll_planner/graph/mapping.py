"""Devices of chains: heavy ones apart, others where they are least in the way.

In: a graph, its levels, the link, K devices. Out: the device of each group. Called by
`place` as one of the heuristics.

[1] The K heaviest chains are the primary clusters, one on each device.
[2] Every other chain, by the time at which it begins, goes to the device with the
    least sum of
        work that the device has within the chain's span of time    (Fenwick trees)
        communication that remains with what stands elsewhere
        a part of the work, and of the bytes, above an even share
    Spans are of top levels, in bins.

Source: ParDNN (Qararyah et al., 2020), sections on mapping; the terms of shares are
ours, and so is that one pass does.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.graph.arrays import Floats, Graph, Ints, Rows, rows
from plimsoll_planner.graph.chains import chains_of
from plimsoll_planner.graph.levels import Levels

NUM_BINS = 4096
"""Of the time from the first node to the last."""
WORK_WEIGHT = 0.05
"""Of seconds above an even share of the work, against seconds in the way."""
BYTES_WEIGHT = 0.05
"""The same of bytes, a share of them weighing as much as the same share of work."""


class SpanWork:
    """Seconds of work in spans of time, for all devices at once: Fenwick trees."""

    def __init__(self, num_bins: int, num_devices: int) -> None:
        """Nothing to do at first."""
        self.tree = np.zeros((num_bins + 1, num_devices))

    def add(self, device: int, bins: Ints, seconds: Floats) -> None:
        """Work of one device, in bins that may repeat."""
        column, place = self.tree[:, device], bins + 1
        while len(place):
            np.add.at(column, place, seconds)
            place = place + (place & -place)
            is_inside = place < len(column)
            place, seconds = place[is_inside], seconds[is_inside]

    def before(self, end: int) -> Floats:
        """Work of each device in bins below `end`."""
        total = np.zeros(self.tree.shape[1])
        while end > 0:
            total += self.tree[end]
            end -= end & -end
        return total

    def within(self, first: int, end: int) -> Floats:
        """Work of each device from one bin up to another."""
        return self.before(end) - self.before(first)


def neighbours(graph: Graph, send_s: Floats) -> tuple[Rows, Floats]:
    """Groups that exchange values with each group, and the seconds of each exchange."""
    source, target = graph.group[graph.uses.source], graph.group[graph.uses.target]
    is_between = source != target
    source, target = source[is_between], target[is_between]
    cost = send_s[graph.uses.source][is_between]
    both = np.concatenate([source, target]), np.concatenate([target, source])
    order = np.argsort(both[0], kind="stable")
    pairs = rows(graph.num_groups, *both)
    return pairs, np.concatenate([cost, cost])[order]


def value_bytes_of_groups(graph: Graph) -> Ints:
    """States of groups and all storages of theirs: how much room they may need."""
    found = graph.group_state.copy()
    storage, first = np.unique(graph.holds.target, return_index=True)
    where = graph.group[graph.holds.source[first]]
    np.add.at(found, where, graph.storage_bytes[storage])
    return found


def mapped(graph: Graph, levels: Levels, send_s: Floats, num_devices: int) -> Ints:
    """Device of each group."""
    chains = chains_of(graph, levels)
    mapping = Mapping(graph, levels, send_s, num_devices)
    work = mapping.group_work
    heavy = sorted(
        range(len(chains)), key=lambda chain: -float(work[chains[chain]].sum())
    )
    for device, chain in enumerate(heavy[:num_devices]):  # [1]
        mapping.put(np.array(chains[chain]), device)
    begin = mapping.group_first
    rest = [np.array(chains[chain]) for chain in heavy[num_devices:]]
    for groups in sorted(rest, key=lambda one: int(begin[one].min())):  # [2]
        mapping.put(groups, mapping.best(groups))
    return mapping.device


class Mapping:
    """Devices of the groups that have one, and what follows from that."""

    def __init__(
        self, graph: Graph, levels: Levels, send_s: Floats, num_devices: int
    ) -> None:
        """No group has a device."""
        num_groups = graph.num_groups
        length = levels.length_s or 1.0
        bins = (levels.top / length * (NUM_BINS - 1)).astype(np.int64)
        self.graph, self.bins = graph, np.minimum(bins, NUM_BINS - 1)
        self.group_first = np.full(num_groups, NUM_BINS)
        np.minimum.at(self.group_first, graph.group, self.bins)
        self.group_last = np.zeros(num_groups, dtype=np.int64)
        np.maximum.at(self.group_last, graph.group, self.bins)
        self.group_work = np.bincount(
            graph.group, weights=graph.seconds, minlength=num_groups
        )
        self.group_bytes = value_bytes_of_groups(graph)
        self.pairs, self.pair_s = neighbours(graph, send_s)
        self.spans = SpanWork(NUM_BINS, num_devices)
        self.device = np.full(num_groups, -1)
        self.load, self.held = np.zeros(num_devices), np.zeros(num_devices)
        self.even_s = float(self.group_work.sum()) / num_devices
        self.even_bytes = max(float(self.group_bytes.sum()) / num_devices, 1.0)

    def put(self, groups: Ints, device: int) -> None:
        """Give a chain its device."""
        self.device[groups] = device
        nodes = self.graph.members.target[self.graph.members.of(groups)]
        self.spans.add(device, self.bins[nodes], self.graph.seconds[nodes])
        self.load[device] += self.group_work[groups].sum()
        self.held[device] += self.group_bytes[groups].sum()

    def best(self, groups: Ints) -> int:
        """Device on which a chain is least in the way; of equals the emptier one."""
        first = int(self.group_first[groups].min())
        end = int(self.group_last[groups].max()) + 1
        busy_s = self.spans.within(first, end)
        at = self.pairs.of(groups)
        where = self.device[self.pairs.target[at]]
        is_placed = where >= 0
        near_s = np.bincount(
            where[is_placed],
            weights=self.pair_s[at][is_placed],
            minlength=len(self.load),
        )
        work, held = self.group_work[groups].sum(), self.group_bytes[groups].sum()
        over_s = np.maximum(self.load + work - self.even_s, 0)
        over_bytes = np.maximum(self.held + held - self.even_bytes, 0)
        cost = busy_s + (near_s.sum() - near_s) + WORK_WEIGHT * over_s
        cost += BYTES_WEIGHT * over_bytes * (self.even_s / self.even_bytes)
        return int(np.lexsort((self.load, cost))[0])
