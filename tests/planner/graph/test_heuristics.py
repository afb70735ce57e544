"""Parts of the heuristics: levels, chains, spans of work, orders, earliest finish."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll_planner.graph.arrays import Graph, graph_of, ranges
from plimsoll_planner.graph.chains import chains_of
from plimsoll_planner.graph.descent import descended
from plimsoll_planner.graph.earliest import earliest
from plimsoll_planner.graph.levels import levels_of, send_seconds
from plimsoll_planner.graph.mapping import SpanWork, mapped
from plimsoll_planner.graph.order import list_order, positions, started_at
from tests.support.operator_graphs import LINK, Node, a_graph, random_graph


def a_diamond() -> Graph:
    """Four nodes of 1 ms that send 1.1 ms: n0 to n1 and n2, these to n3."""
    nodes = [Node() for _ in range(4)]
    nodes[1].inputs = nodes[2].inputs = (0,)
    nodes[3].inputs = (1, 2)
    return graph_of(a_graph(nodes))


def test_levels_by_hand() -> None:
    """Top without the node, bottom with it; sends of 1.1 ms on every edge."""
    graph = a_diamond()
    levels = levels_of(graph, send_seconds(graph, LINK))
    assert levels.top == pytest.approx([0, 2.1e-3, 2.1e-3, 4.2e-3])
    assert levels.bottom == pytest.approx([5.2e-3, 3.1e-3, 3.1e-3, 1e-3])


def test_chains_of_a_diamond() -> None:
    """The longest path first; the other side is a chain of one."""
    graph = a_diamond()
    levels = levels_of(graph, send_seconds(graph, LINK))
    assert chains_of(graph, levels) == [[0, 1, 3], [2]]


@pytest.mark.parametrize("seed", range(4))
def test_every_group_has_a_chain_and_a_device(seed: int) -> None:
    """Once; and all nodes of a group stand where it does."""
    graph = graph_of(random_graph(120, seed))
    send_s = send_seconds(graph, LINK)
    levels = levels_of(graph, send_s)
    chained = [group for chain in chains_of(graph, levels) for group in chain]
    assert sorted(chained) == list(range(graph.num_groups))
    for heuristic in (mapped, earliest):
        device = heuristic(graph, levels, send_s, 5)
        assert len(device) == graph.num_groups
        assert set(device.tolist()) <= set(range(5))


def test_work_in_spans_is_a_sum() -> None:
    """Fenwick trees against plain sums, for bins that repeat."""
    rng = np.random.default_rng(0)
    spans, plain = SpanWork(40, 3), np.zeros((40, 3))
    for _ in range(30):
        device, bins = int(rng.integers(3)), rng.integers(0, 40, 6)
        seconds = rng.random(6)
        spans.add(device, bins, seconds)
        np.add.at(plain[:, device], bins, seconds)
    for first, end in ((0, 40), (3, 17), (16, 32), (39, 40)):
        found = spans.within(first, end)
        assert found == pytest.approx(plain[first:end].sum(axis=0))


@pytest.mark.parametrize("seed", range(4))
def test_an_order_respects_every_edge(seed: int) -> None:
    """Also of nodes that take no time, on any devices."""
    graph = graph_of(random_graph(150, seed))
    send_s = send_seconds(graph, LINK)
    device = np.random.default_rng(seed).integers(0, 4, graph.num_groups)[graph.group]
    bottom = levels_of(graph, send_s).bottom
    place = positions(list_order(graph, device, bottom, send_s))
    assert sorted(place.tolist()) == list(range(150))
    assert (place[graph.after.source] < place[graph.after.target]).all()


def test_a_list_schedule_by_hand() -> None:
    """n2 alone on device 1: it begins 1.1 ms behind n0, n3 1.1 ms behind n2."""
    graph = a_diamond()
    send_s = send_seconds(graph, LINK)
    bottom = levels_of(graph, send_s).bottom
    started = started_at(graph, np.array([0, 0, 1, 0]), bottom, send_s)
    assert started == pytest.approx([0, 1e-3, 2.1e-3, 4.2e-3])


def test_sends_that_cost_more_than_work_are_not_made() -> None:
    """By earliest finish the diamond stays on one device; two free nodes part."""
    graph = a_diamond()
    send_s = send_seconds(graph, LINK)
    assert set(earliest(graph, levels_of(graph, send_s), send_s, 2).tolist()) == {0}
    apart = graph_of(a_graph([Node(), Node()]))
    send_s = send_seconds(apart, LINK)
    assert earliest(apart, levels_of(apart, send_s), send_s, 2).tolist() == [0, 1]


def test_a_descent_ends_where_no_move_is_better() -> None:
    """Ones cost; it asks no more often than it may."""
    asked: list[int] = []

    def ones(groups: np.ndarray) -> tuple[int, float]:
        asked.append(1)
        return 0, float(groups.sum())

    start = np.array([1, 0, 1, 1])
    assert descended(start, 2, ones, 100).tolist() == [0, 0, 0, 0]
    assert start.tolist() == [1, 0, 1, 1]
    asked.clear()
    assert descended(start, 2, ones, 2).tolist() == [0, 0, 1, 1]
    assert len(asked) == 3


def test_ranges_may_be_empty() -> None:
    """Numbers of three ranges, one of none."""
    found = ranges(np.array([5, 9, 2]), np.array([2, 0, 3]))
    assert found.tolist() == [5, 6, 2, 3, 4]
    assert ranges(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).size == 0
