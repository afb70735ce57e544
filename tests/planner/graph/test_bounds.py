"""Lower bounds against every placement in every order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.graph.arrays import graph_of
from plimsoll_planner.graph.bounds import bounds_of, cut_bytes
from tests.support.drawing import draws
from tests.support.every_placement import in_every_order
from tests.support.operator_graphs import LINK, Node, Weight, a_graph, random_graph


@given(
    st.integers(0, 2**32),
    st.sampled_from([(5, 2), (4, 3)]),
    st.sampled_from([0.0, 0.4]),
)
@settings(max_examples=draws(40))
def test_no_placement_is_below_a_bound(
    seed: int, size: tuple[int, int], several: float
) -> None:
    """Few nodes on two or three devices, all orders, a short window and a long one."""
    num_nodes, num_devices = size
    profile = random_graph(num_nodes, seed, several)
    bounds = bounds_of(graph_of(profile), num_devices)
    for window in (1, 50):
        for found in in_every_order(profile, num_devices, window, LINK):
            assert bounds.peak_bytes <= found.peak_bytes
            assert bounds.makespan_s <= found.makespan_s + 1e-12


def test_a_workspace_counts_at_its_least() -> None:
    """n1 copies n0, which has gaps, unless it was sent without them.

    With n0 on another device, n1 takes 100 of n0 and 1 of its own, and no workspace.
    """
    gap = Node(output_bytes=100, own_bytes=400, is_contiguous=False)
    reader = Node(
        output_bytes=1, inputs=(0,), workspace_bytes=900, packed_workspace_bytes=0
    )
    profile = a_graph([gap, reader])
    assert bounds_of(graph_of(profile), 2).node_bytes == 400
    both = [replace(reader, inputs=(0, 1), mixed_workspace_bytes=50)]
    bounds = bounds_of(graph_of(a_graph([gap, gap, *both])), 3)
    assert bounds.node_bytes == 400
    found = in_every_order(profile, 2, 1, LINK)
    assert min(one.peak_bytes for one in found) == 500


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


def test_a_parameter_beside_a_small_storage_is_no_part_of_a_cut() -> None:
    """n0 returns its weight of 100 bytes and 3 bytes of its own.

    Where n0 is there are its states, 400 bytes, and the 3; a copy would have 103. At n1
    there are the 3 and n1 itself.
    """
    profile = a_graph(
        [
            Node(output_bytes=103, own_bytes=100),
            Node(output_bytes=103, holds=(0,), more_bytes=(3,), inputs=(0,)),
            Node(output_bytes=2, inputs=(1,)),
        ],
        [Weight(node=0, num_bytes=100)],
        standing=(0,),
    )
    assert cut_bytes(graph_of(profile), 2) == 5


def test_a_path_and_a_share_of_the_work() -> None:
    """Two paths of 3 ms and 1 ms: the longer one, or half of 4 ms."""
    nodes = [Node(), Node(inputs=(0,)), Node(inputs=(1,)), Node()]
    bounds = bounds_of(graph_of(a_graph(nodes)), 2)
    assert bounds.critical_path_s == pytest.approx(3e-3)
    assert bounds.work_s == pytest.approx(2e-3)
