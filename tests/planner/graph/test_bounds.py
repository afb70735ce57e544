"""Lower bounds against every placement in every order."""

from __future__ import annotations

import pytest

from plimsoll_planner.graph.arrays import graph_of
from plimsoll_planner.graph.bounds import bounds_of, cut_bytes
from tests.support.every_placement import in_every_order
from tests.support.operator_graphs import LINK, Node, Weight, a_graph, random_graph


@pytest.mark.parametrize("seed", range(12))
def test_no_placement_is_below_a_bound(seed: int) -> None:
    """Five nodes on two devices, all orders, a short window and a long one."""
    profile = random_graph(5, seed)
    bounds = bounds_of(graph_of(profile), 2)
    for window in (1, 50):
        for found in in_every_order(profile, 2, window, LINK):
            assert bounds.peak_bytes <= found.peak_bytes
            assert bounds.makespan_s <= found.makespan_s + 1e-12


def test_saved_values_of_a_loss_are_a_cut() -> None:
    """While the loss runs all that the backward pass reads is somewhere.

    n0 -> n1 -> n2 (loss) -> n3 -> n4; n3 reads n1, n4 reads n0. At n2 there are n0, n1
    and n2 itself: 100 + 200 + 4. At n3 the loss is kept and n3 has come: 305, and 40
    of states; on two devices half of it.
    """
    profile = a_graph(
        [
            Node(output_bytes=100),
            Node(output_bytes=200, inputs=(0,)),
            Node(output_bytes=4, inputs=(1,)),
            Node(output_bytes=1, inputs=(1, 2)),
            Node(output_bytes=1, inputs=(0, 3)),
        ],
        [Weight(node=0, gradient=4, num_bytes=10)],
        outputs=(2,),
    )
    graph = graph_of(profile)
    assert cut_bytes(graph, 2) == 304
    assert bounds_of(graph, 2).cut_bytes == 173


def test_a_path_and_a_share_of_the_work() -> None:
    """Two paths of 3 ms and 1 ms: the longer one, or half of 4 ms."""
    nodes = [Node(), Node(inputs=(0,)), Node(inputs=(1,)), Node()]
    bounds = bounds_of(graph_of(a_graph(nodes)), 2)
    assert bounds.critical_path_s == pytest.approx(3e-3)
    assert bounds.work_s == pytest.approx(2e-3)
