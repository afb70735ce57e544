"""Peaks and what makes them up, and the curve over time."""

from __future__ import annotations

import pytest

from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.graph.fullest import over_moments, over_time
from plimsoll_planner.graph.levels import send_seconds
from plimsoll_planner.graph.place import place
from plimsoll_planner.graph.placed import placed_of
from plimsoll_planner.graph.transfers import all_sends
from plimsoll_planner.graph.walk import walked
from tests.support.operator_graphs import LINK, random_graph


@pytest.mark.parametrize("most_points", [7, 400])
def test_a_curve_over_time_has_the_peak(most_points: int) -> None:
    """However few points there are; seconds never go back, nor beyond the end."""
    profile = random_graph(150, 5)
    plan = place(profile, 3, capacity_bytes=2**40, link=LINK)
    placed = placed_of(plan, profile)
    curve = Curve(placed)
    run = walked(placed, all_sends(placed), send_seconds(placed.graph, LINK))
    for device, peak in enumerate(plan.peaks):
        points = over_time(curve, run, device, most_points)
        seconds = [second for second, _ in points]
        assert max(num_bytes for _, num_bytes in points) == peak.peak_bytes
        assert seconds == sorted(seconds)
        assert seconds[-1] <= plan.makespan_s + 1e-12
        assert len(points) <= most_points


def test_contributors_come_by_size() -> None:
    """The largest first, and none is more than what it is a part of."""
    profile = random_graph(150, 6)
    for peak in place(profile, 3, capacity_bytes=2**40, link=LINK).peaks:
        sizes = [one.num_bytes for one in peak.contributors]
        assert sizes == sorted(sizes, reverse=True)
        parts = peak.value_bytes + peak.received_bytes + peak.transient_bytes
        assert sum(sizes) <= parts


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
