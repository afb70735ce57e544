"""Lists of actions, carried out with dictionaries in the place of tensors."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.graph.actions import Action, Step, actions_of
from plimsoll_planner.graph.arrays import graph_of
from plimsoll_planner.graph.place import place
from plimsoll_planner.graph.placed import placed_of
from plimsoll_planner.graph.transfers import Placed
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.placement_plan import PlacementPlan
from tests.support.drawing import draws
from tests.support.operator_graphs import LINK, Node, Weight, a_graph, random_graph

MUCH = 2**40


def planned(seed: int, num_devices: int = 3) -> tuple[GraphProfile, PlacementPlan]:
    """Place a random graph of 80 nodes, sends beginning a few places early."""
    profile = random_graph(80, seed, 0.1)
    plan = place(profile, num_devices, capacity_bytes=MUCH, link=LINK, send_window=4)
    return profile, plan


def lists_of(profile: GraphProfile, plan: PlacementPlan) -> list[list[Action]]:
    """Actions of all ranks."""
    return actions_of(placed_of(plan, profile), profile)


class Rank:
    """A rank without tensors: the values it has, and the bytes that they take."""

    def __init__(self, profile: GraphProfile, standing_bytes: int) -> None:
        """Hold the states."""
        self.profile, self.standing_bytes = profile, standing_bytes
        self.values: set[int] = set()
        self.copies: set[int] = set()
        self.packed: list[int] = []
        self.added: list[int] = []
        self.peak_bytes = 0
        self.storages: dict[int, list[int]] = defaultdict(list)
        for node, storage in zip(
            profile.holds.node, profile.holds.storage, strict=True
        ):
            self.storages[node].append(storage)
        self.inputs: dict[int, list[int]] = defaultdict(list)
        edges = profile.edges
        for source, target, carries in zip(
            edges.source, edges.target, edges.carries_value, strict=True
        ):
            if carries:
                self.inputs[target].append(source)

    def do(self, action: Action) -> None:
        """Carry out one action."""
        node, nodes = action.node, self.profile.nodes
        if action.step is Step.RUN:
            assert set(self.inputs[node]) <= self.values | self.copies
            self.values.add(node)
            self.count(self.workspace(node))
        elif action.step is Step.SEND:
            assert node in self.values
            self.packed += [] if nodes.is_contiguous[node] else [node]
        elif action.step is Step.RECEIVE:
            self.copies.add(node)
        elif action.step is Step.SENT and not nodes.is_contiguous[node]:
            self.packed.remove(node)
        elif action.step is Step.ADD:
            assert node in self.values | self.copies
            self.added.append(action.peer)
        elif action.step is Step.FREE:
            self.values.remove(node)
        elif action.step is Step.FREE_COPY:
            self.copies.remove(node)
        elif action.step is Step.STEP:
            assert action.peer in self.added
            self.count(self.profile.parameters.step_bytes[action.peer])
        self.count(0)

    def workspace(self, node: int) -> int:
        """Bytes that a node takes, by which of its arguments were received."""
        nodes = self.profile.nodes
        others = {
            source
            for source in self.inputs[node]
            if not nodes.is_contiguous[source]
            and nodes.group[source] != nodes.group[node]
        }
        if not others & self.copies:
            return nodes.workspace_bytes[node]
        if others <= self.copies:
            return nodes.packed_workspace_bytes[node]
        return nodes.mixed_workspace_bytes[node]

    def count(self, extra_bytes: int) -> None:
        """Count what is there, with so much on top."""
        sizes = self.profile.nodes.output_bytes
        held = {one for node in self.values for one in self.storages[node]}
        storages = self.profile.storages
        own = sum(storages.num_bytes[s] for s in held if not storages.is_parameter[s])
        passing = sum(sizes[node] for node in (*self.copies, *self.packed))
        total = self.standing_bytes + own + passing + extra_bytes
        self.peak_bytes = max(self.peak_bytes, total)


@given(st.integers(0, 2**32))
@settings(max_examples=draws(12))
def test_ranks_hold_what_the_plan_says(seed: int) -> None:
    """Each has its inputs when a node runs, ends empty, and peaks to the byte."""
    profile, plan = planned(seed)
    added: list[int] = []
    for peak, actions in zip(plan.peaks, lists_of(profile, plan), strict=True):
        rank = Rank(profile, peak.state_bytes)
        for action in actions:
            rank.do(action)
        assert rank.peak_bytes == peak.peak_bytes
        assert not rank.values | rank.copies
        added += rank.added
    trained = [g is not None for g in profile.parameters.gradient]
    assert sorted(added) == [i for i, has in enumerate(trained) if has]


@given(st.integers(0, 2**32))
@settings(max_examples=draws(8))
def test_ranks_that_wait_for_each_other_come_to_an_end(seed: int) -> None:
    """A send ends once both sides began it; ranks go on as far as they can."""
    profile, plan = planned(seed, num_devices=4)
    lists = lists_of(profile, plan)
    at, begun = [0] * len(lists), set[tuple[int, int, int]]()
    is_moving = True
    while is_moving:
        is_moving = False
        for rank, actions in enumerate(lists):
            while at[rank] < len(actions):
                step, node, peer = actions[at[rank]][1:]
                if step in (Step.SEND, Step.RECEIVE):
                    begun.add((node, rank, peer))
                waits = step in (Step.SENT, Step.RECEIVED)
                if waits and (node, peer, rank) not in begun:
                    break
                at[rank] += 1
                is_moving = True
    assert at == [len(actions) for actions in lists]


@given(st.integers(0, 2**32))
@settings(max_examples=draws(8))
def test_both_sides_have_their_messages_in_one_order(seed: int) -> None:
    """So that messages between two ranks need no names."""
    profile, plan = planned(seed)
    lists = lists_of(profile, plan)
    for one, other in ((0, 1), (1, 2), (2, 0)):
        sent = [a.node for a in lists[one] if a.step is Step.SEND and a.peer == other]
        got = [a.node for a in lists[other] if a.step is Step.RECEIVE and a.peer == one]
        assert sent == got


def test_a_gradient_is_sent_before_its_storage_is_written() -> None:
    """The second node returns the gradient of a weight on the other device.

    Order n0 (device 0, has the weight), n1 (device 1), n2 (device 0), n3 (device 1,
    writes into the storage of n1). The window of 8 places is beyond the end: the send
    ends behind n2, at moment 5, and n3 runs at 6.
    """
    profile = a_graph(
        [Node(), Node(), Node(inputs=(0,)), Node(inputs=(1,), holds=(1,))],
        [Weight(node=0, gradient=1, num_bytes=1000)],
    )
    placed = Placed(
        graph=graph_of(profile),
        device=np.array([0, 1, 0, 1]),
        place=np.arange(4),
        num_devices=2,
        window=8,
    )
    first, second = actions_of(placed, profile)
    assert Action(5, Step.ADD, 1, 0) in first
    assert [action[:3] for action in second] == [
        (2, Step.RUN, 1),
        (3, Step.SEND, 1),
        (5, Step.SENT, 1),
        (6, Step.RUN, 3),
        (6, Step.FREE, 1),
        (6, Step.FREE, 3),
    ]
