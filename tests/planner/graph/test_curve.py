"""The curve of every device against a slow look at every moment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.graph.arrays import graph_of
from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.graph.levels import levels_of, send_seconds
from plimsoll_planner.graph.order import list_order, positions
from plimsoll_planner.graph.transfers import Placed, all_sends
from plimsoll_planner.graph.walk import walked_s
from plimsoll_planner.records.graph_profile import GraphProfile
from tests.support.drawing import draws
from tests.support.operator_graphs import LINK, Node, Weight, a_graph, random_graph
from tests.support.placement_truth import Truth


def placed_at_random(
    profile: GraphProfile, num_devices: int, window: int, seed: int
) -> Placed:
    """Place groups at random, in the order of a list schedule."""
    rng = np.random.default_rng(seed)
    graph = graph_of(profile)
    device = rng.integers(0, num_devices, graph.num_groups)[graph.group]
    send_s = send_seconds(graph, LINK)
    order = list_order(graph, device, levels_of(graph, send_s).bottom, send_s)
    return Placed(
        graph=graph,
        device=device,
        place=positions(order),
        num_devices=num_devices,
        window=window,
    )


def truth_of(profile: GraphProfile, placed: Placed) -> Truth:
    """The slow look at the same placement."""
    device = [0] * profile.num_groups
    for node, group in enumerate(profile.nodes.group):
        device[group] = int(placed.device[node])
    return Truth(profile, device, np.argsort(placed.place).tolist())


@given(
    st.integers(0, 2**32),
    st.sampled_from([(9, 2), (60, 4), (200, 3)]),
    st.sampled_from([1, 2, 8, 1000]),
    st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=draws(30))
def test_the_curve_is_what_the_rules_say(
    seed: int, size: tuple[int, int], window: int, several: float
) -> None:
    """At every moment, on every device, to the byte; sends and seconds as well."""
    num_nodes, num_devices = size
    profile = random_graph(num_nodes, seed, several)
    placed = placed_at_random(profile, num_devices, window, seed)
    truth, sends = truth_of(profile, placed), all_sends(placed)
    assert Curve(placed).live.tolist() == truth.curve(num_devices, window)
    columns = (sends.node, sends.destination, sends.begin, sends.end)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == [
        (sent.node, sent.destination, sent.begin, sent.end)
        for sent in truth.sends(window)
    ]
    send_s = send_seconds(placed.graph, LINK)
    expected_s = truth.seconds(num_devices, window, LINK)
    assert walked_s(placed, sends, send_s) == pytest.approx(expected_s)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3]))
@settings(max_examples=draws(16))
def test_a_curve_follows_moves(seed: int, several: float) -> None:
    """After any moves it is what it would be if it were counted anew."""
    profile = random_graph(150, seed, several)
    placed = placed_at_random(profile, 4, 6, seed)
    curve, rng = Curve(placed), np.random.default_rng(seed)
    for _ in range(6):
        groups = rng.choice(profile.num_groups, 9, replace=False)
        curve.move(np.sort(groups), int(rng.integers(4)))
        again = Curve(placed)
        assert (curve.live == again.live).all()
        assert (curve.peak == again.peak).all()
        assert (curve.birth == again.birth).all()


def test_a_chain_by_hand() -> None:
    """Three nodes on two devices; the second sends the gradient of n0's weight.

    Order n0 (device 0), n1 (device 1), n2 (device 1, the gradient of n0's weight),
    window 1. Moments 0 to 6; 400 bytes stand on device 0 (100 + 100 + 200).

        n0     100 bytes on 0 at moments 0 and 1: sent after place 0
        copy   100 bytes on 1 from 1 to 4: n1 and n2 read it
        n1      10 bytes on 1 at 2 to 4
        n2     100 bytes on 1 at 4 and 5, its copy on 0 at 5
    """
    profile = a_graph(
        [
            Node(output_bytes=100),
            Node(output_bytes=10, inputs=(0,)),
            Node(output_bytes=100, inputs=(0, 1)),
        ],
        [Weight(node=0, gradient=2, num_bytes=100, step_bytes=7)],
    )
    placed = Placed(
        graph=graph_of(profile),
        device=np.array([0, 1, 1]),
        place=np.arange(3),
        num_devices=2,
        window=1,
    )
    assert Curve(placed).live.tolist() == [
        [500, 500, 400, 400, 400, 500, 407],
        [0, 100, 110, 110, 210, 100, 0],
    ]


def test_a_copy_of_a_gradient_that_was_read_early_dies_with_its_send() -> None:
    """n1 is the gradient of n0's weight, and n2, beside n0, reads it at once.

    Order n0 (device 0), n1 (device 1), n2, n3, n4 (device 0), window 9: the copy of n1
    is there at moment 3 and 4. As a gradient alone it would have stayed until 9.
    """
    profile = a_graph(
        [
            Node(output_bytes=0),
            Node(output_bytes=100),
            *(Node(output_bytes=0, inputs=inputs) for inputs in ((1,), (0,), (0,))),
        ],
        [Weight(node=0, gradient=1, num_bytes=10)],
    )
    placed = Placed(
        graph=graph_of(profile),
        device=np.array([0, 1, 0, 0, 0]),
        place=np.arange(5),
        num_devices=2,
        window=9,
    )
    live = Curve(placed).live[0].tolist()
    assert live == [40, 40, 40, 140, 140, 40, 40, 40, 40, 40, 40]
