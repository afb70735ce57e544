"""Rules of graphs and placements: each is broken once, and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.graph_profile import GraphProfile, digest_of_graph
from plimsoll_planner.records.interval import Verdict
from tests.support.operator_graphs import (
    Node,
    Weight,
    a_graph,
    a_graph_profile,
    a_placement,
    without_seconds,
)

GRAPH, PLAN = a_graph_profile(), a_placement()


def with_nodes(**columns: Any) -> GraphProfile:
    """The graph with other columns of nodes."""
    return replace(GRAPH, nodes=replace(GRAPH.nodes, **columns))


def with_edges(**columns: Any) -> GraphProfile:
    """The graph with other columns of edges."""
    return replace(GRAPH, edges=replace(GRAPH.edges, **columns))


BROKEN: list[tuple[str, Callable[[], Any], str]] = [
    ("no node", lambda: a_graph([]), "GraphProfile.nodes.name"),
    ("a short column", lambda: with_nodes(group=(0, 1)), "NodeColumns.group"),
    ("one name twice", lambda: with_nodes(name=("a", "b", "a")), "NodeColumns.name"),
    ("an unknown operator", lambda: with_nodes(operator=(0, 1, 0)), "nodes.operator"),
    ("a group left out", lambda: with_nodes(group=(0, 2, 1)), "nodes.group[1]"),
    (
        "a storage in two groups",
        lambda: replace(GRAPH, holds=replace(GRAPH.holds, storage=(0, 0, 2))),
        "nodes.group: got 'n1: 1'",
    ),
    (
        "a storage held twice by one node",
        lambda: a_graph([Node(), Node(holds=(0, 0))]),
        "GraphProfile.holds",
    ),
    ("an edge backwards", lambda: with_edges(source=(0, 2, 1)), "n2 -> n2"),
    (
        "an edge twice",
        lambda: with_edges(source=(0, 0, 0), target=(1, 2, 2)),
        "GraphProfile.edges",
    ),
    ("an edge to nowhere", lambda: with_edges(target=(1, 2, 3)), "edges.target: got 3"),
    (
        "a gradient of nowhere",
        lambda: replace(GRAPH, parameters=replace(GRAPH.parameters, gradient=(9,))),
        "parameters.gradient: got 9",
    ),
    (
        "a parameter smaller than its storage",
        lambda: a_graph(
            [Node(output_bytes=9)], [Weight(node=0, num_bytes=8)], (), (0,)
        ),
        "parameters.parameter_bytes: got 8, allowed is at least 9 in the group of n0",
    ),
    (
        "more bytes than a record holds",
        lambda: a_graph(
            [Node(output_bytes=1)],
            [Weight(node=0, num_bytes=2**51) for _ in range(4096)],
        ),
        f"GraphProfile.nodes: got {2**65 + 2}, allowed is at most 2^53 - 1 bytes",
    ),
    (
        "a digest of another graph",
        lambda: with_nodes(output_bytes=(100, 10, 99)),
        f"graph_digest: got '{GRAPH.graph_digest}', allowed is sha256:",
    ),
    ("an output of nowhere", lambda: replace(GRAPH, outputs=(3,)), "outputs: got 3"),
    ("a node twice", lambda: a_placement(order=(0, 1, 1)), "order: got 1, allowed"),
    ("a node too far", lambda: a_placement(order=(0, 1, 3)), "order: got 3, allowed"),
    ("a device too far", lambda: a_placement(devices=(0, 1, 2)), "PlacementPlan.dev"),
    (
        "a peak missing",
        lambda: a_placement(peaks=PLAN.peaks[:1]),
        "PlacementPlan.peaks",
    ),
    (
        "a send that ends before it begins",
        lambda: a_placement(sends=replace(PLAN.sends, begin=(1, 2))),
        "PlacementPlan.sends.end: got 0, allowed is at least 1",
    ),
    (
        "a send of nothing",
        lambda: a_placement(sends=replace(PLAN.sends, node=(0, 3))),
        "PlacementPlan.sends.node: got 3",
    ),
    (
        "a peak that is not the sum of its parts",
        lambda: replace(PLAN.peaks[0], value_bytes=99),
        "DevicePeak.peak_bytes: got 500, allowed is the sum of its parts, 499 bytes",
    ),
    (
        "peaks below a bound",
        lambda: a_placement(bounds=replace(PLAN.bounds, cut_bytes=501)),
        "PlacementPlan.peaks: got 500, allowed is a largest peak of at least 501",
    ),
    (
        "a failure that no bound proves",
        lambda: a_placement(verdict=Verdict.FAILS),
        "PlacementPlan.verdict: got 'fails', allowed is fits",
    ),
    (
        "a fit above the capacity",
        lambda: a_placement(capacity_bytes=499),
        "PlacementPlan.verdict: got 'fits', allowed is fails",
    ),
]


@pytest.mark.parametrize(
    ("build", "message"),
    [(build, message) for _, build, message in BROKEN],
    ids=[name for name, _, _ in BROKEN],
)
def test_a_broken_rule_is_named(build: Callable[[], Any], message: str) -> None:
    """The field, and what is allowed."""
    with pytest.raises(InvalidFieldError) as caught:
        build()
    assert message in str(caught.value)


def test_unknown_seconds_are_kept() -> None:
    """A graph with a node whose seconds nobody knows is written and read."""
    profile = without_seconds(GRAPH, 1)
    again = from_text(to_text(profile), GraphProfile)
    assert again == profile
    assert again.nodes.seconds[1] is None


def test_the_digest_is_of_all_but_the_seconds() -> None:
    """Another measurement is the same graph, another edge is not."""
    assert a_graph([Node(seconds=1.0)]).graph_digest == (
        a_graph([Node(seconds=2.0)]).graph_digest
    )
    assert a_graph([Node(output_bytes=1)]).graph_digest != (
        a_graph([Node(output_bytes=2)]).graph_digest
    )
    parts = (GRAPH.operators, GRAPH.nodes, GRAPH.edges, GRAPH.storages)
    rest = (GRAPH.holds, GRAPH.parameters, GRAPH.outputs)
    assert digest_of_graph(*parts, *rest) == GRAPH.graph_digest
