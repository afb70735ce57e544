"""Bytes and seconds of a placement by definition: slow loops, nothing shared.

Written from the rules of life alone, with dictionaries and one look at every moment, so
that it can judge the vectors of `plimsoll_planner.graph`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.offer import Link


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """One send, with the moments at which nodes read its copy."""

    node: int
    source: int
    destination: int
    begin: int
    end: int
    used: tuple[int, ...]


class Truth:
    """A placement, looked at moment by moment."""

    def __init__(
        self, profile: GraphProfile, device_of_group: list[int], order: list[int]
    ) -> None:
        """Say where everything is."""
        self.profile, self.order = profile, order
        self.length = len(order)
        self.where = [device_of_group[group] for group in profile.nodes.group]
        self.place = {node: place for place, node in enumerate(order)}
        self.readers: dict[int, list[int]] = defaultdict(list)
        edges = profile.edges
        for source, target, carries in zip(
            edges.source, edges.target, edges.carries_value, strict=True
        ):
            if carries:
                self.readers[source].append(target)
        self.owners: dict[int, set[int]] = defaultdict(set)
        for gradient, node in zip(
            profile.parameters.gradient, profile.parameters.node, strict=True
        ):
            if gradient is not None:
                self.owners[gradient].add(self.where[node])

    def sends(self, window: int) -> list[Sent]:
        """Every send."""
        found: list[Sent] = []
        for node in range(self.length):
            own, made = self.where[node], self.place[node]
            used: dict[int, list[int]] = defaultdict(list)
            first: dict[int, list[int]] = defaultdict(list)
            for reader in self.readers[node]:
                used[self.where[reader]].append(self.place[reader])
                first[self.where[reader]].append(self.place[reader])
            for owner in self.owners[node]:
                overwritten = self.next_holder(node)
                first[owner].append(min(made + window, self.length, overwritten))
            for device in sorted(set(first) - {own}):
                needed = min(first[device])
                found.append(
                    Sent(
                        node=node,
                        source=own,
                        destination=device,
                        begin=max(made, needed - window),
                        end=needed - 1,
                        used=tuple(2 * place for place in used[device]),
                    )
                )
        return found

    def next_holder(self, node: int) -> int:
        """Place of the first node behind one that holds any of its storages."""
        holds = list(
            zip(self.profile.holds.node, self.profile.holds.storage, strict=True)
        )
        own = {storage for holder, storage in holds if holder == node}
        places = [self.place[holder] for holder, storage in holds if storage in own]
        later = [place for place in places if place > self.place[node]]
        return min(later, default=self.length)

    def last(self, node: int, sends: list[Sent]) -> int:
        """Last moment of a node's value on its own device."""
        moments = [2 * self.place[node]]
        moments += [
            2 * self.place[reader]
            for reader in self.readers[node]
            if self.where[reader] == self.where[node]
        ]
        moments += [2 * sent.end + 1 for sent in sends if sent.node == node]
        if node in self.profile.outputs:
            moments.append(2 * self.length)
        return max(moments)

    def curve(self, num_devices: int, window: int) -> list[list[int]]:
        """Bytes of each device at each moment."""
        sends = self.sends(window)
        lives = [
            (2 * self.place[node], self.last(node, sends))
            for node in range(self.length)
        ]
        return [
            [
                self.states(device)
                + self.values(device, moment, lives)
                + self.passing(device, moment, sends)
                for moment in range(2 * self.length + 1)
            ]
            for device in range(num_devices)
        ]

    def states(self, device: int) -> int:
        """Bytes that stand on a device."""
        parameters = self.profile.parameters
        return sum(
            parameters.parameter_bytes[one]
            + parameters.gradient_bytes[one]
            + parameters.optimizer_bytes[one]
            for one, node in enumerate(parameters.node)
            if self.where[node] == device
        )

    def values(self, device: int, moment: int, lives: list[tuple[int, int]]) -> int:
        """Bytes of storages on a device: from the first holder to the last."""
        holders: dict[int, list[int]] = defaultdict(list)
        for node, storage in zip(
            self.profile.holds.node, self.profile.holds.storage, strict=True
        ):
            holders[storage].append(node)
        return sum(
            self.profile.storages.num_bytes[storage]
            for storage, nodes in holders.items()
            if not self.profile.storages.is_parameter[storage]
            and self.where[nodes[0]] == device
            and min(lives[node][0] for node in nodes) <= moment
            and moment <= max(lives[node][1] for node in nodes)
        )

    def passing(self, device: int, moment: int, sends: list[Sent]) -> int:
        """Bytes of copies, of what is packed, of workspaces and of the optimizer."""
        nodes, total = self.profile.nodes, 0
        for sent in sends:
            size, begun = nodes.output_bytes[sent.node], 2 * sent.begin + 1
            over = 2 * sent.end + 1
            death = max([over, *sent.used])
            if sent.destination == device and begun <= moment <= death:
                total += size
            is_packed = not nodes.is_contiguous[sent.node]
            if is_packed and sent.source == device and begun <= moment <= over:
                total += size
        if moment == 2 * self.length:
            parameters = self.profile.parameters
            here = [
                parameters.step_bytes[one]
                for one, node in enumerate(parameters.node)
                if self.where[node] == device
            ]
            return total + max(here, default=0)
        if moment % 2 == 0 and self.where[self.order[moment // 2]] == device:
            total += self.workspace(self.order[moment // 2])
        return total

    def workspace(self, node: int) -> int:
        """Bytes that a node takes while it runs."""
        nodes = self.profile.nodes
        is_received = [
            self.where[source] != self.where[node]
            for source in range(self.length)
            if node in self.readers[source]
            and not nodes.is_contiguous[source]
            and nodes.group[source] != nodes.group[node]
        ]
        if not any(is_received):
            return nodes.workspace_bytes[node]
        if all(is_received):
            return nodes.packed_workspace_bytes[node]
        return nodes.mixed_workspace_bytes[node]

    def seconds(self, num_devices: int, window: int, link: Link) -> float:
        """Seconds until all nodes and sends are done."""
        sends, clock = self.sends(window), [0.0] * num_devices
        arrival: dict[int, float] = {}
        for place, node in enumerate(self.order):
            clock[self.where[node]] += self.profile.nodes.seconds[node] or 0.0
            for number, sent in enumerate(sends):
                if sent.begin == place:
                    size = self.profile.nodes.output_bytes[sent.node]
                    takes = link.latency_s + size / link.bandwidth_bytes_per_s
                    ready = max(clock[sent.source], clock[sent.destination])
                    arrival[number] = ready + takes
            for number, sent in enumerate(sends):
                if sent.end == place:
                    for side in (sent.source, sent.destination):
                        clock[side] = max(clock[side], arrival[number])
        return max(clock)
