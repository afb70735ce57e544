"""Peaks and what makes them up, and the curve over the order."""

from __future__ import annotations

import pytest

from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.graph.fullest import over_moments
from plimsoll_planner.graph.place import place
from plimsoll_planner.graph.placed import placed_of
from plimsoll_planner.records.placement_plan import ContributorKind
from tests.support.operator_graphs import LINK, Node, a_graph, random_graph


def test_contributors_come_by_size() -> None:
    """The largest first, and none is more than what it is a part of."""
    profile = random_graph(150, 6)
    for peak in place(profile, 3, capacity_bytes=2**40, link=LINK).peaks:
        sizes = [one.num_bytes for one in peak.contributors]
        assert sizes == sorted(sizes, reverse=True)
        parts = peak.value_bytes + peak.received_bytes + peak.transient_bytes
        assert sum(sizes) <= parts


def test_workspaces_and_values_of_one_operator_are_kept_apart() -> None:
    """Both are of one name; the workspace is gone afterwards."""
    profile = a_graph([Node(output_bytes=100, workspace_bytes=300)], outputs=(0,))
    plan = place(profile, 1, capacity_bytes=2**40, link=LINK)
    [peak] = plan.peaks
    assert [(one.name, one.num_bytes, one.kind) for one in peak.contributors] == [
        ("n0", 300, ContributorKind.TRANSIENT),
        ("n0", 100, ContributorKind.VALUE),
    ]


@pytest.mark.parametrize("most_points", [7, 600])
def test_stretches_of_moments_keep_the_most_of_each(most_points: int) -> None:
    """Few moments are all there; of many, each stretch stands for its fullest."""
    profile = random_graph(150, 5)
    plan = place(profile, 3, capacity_bytes=2**40, link=LINK)
    curve = Curve(placed_of(plan, profile))
    for device, peak in enumerate(plan.peaks):
        points, live = over_moments(curve, device, most_points), curve.live[device]
        firsts = [moment for moment, _ in points]
        ends = [*firsts[1:], len(live)]
        assert firsts[0] == 0
        assert len(points) == min(most_points, len(live))
        for (first, num_bytes), end in zip(points, ends, strict=True):
            assert num_bytes == live[first:end].max()
        assert max(num_bytes for _, num_bytes in points) == peak.peak_bytes
