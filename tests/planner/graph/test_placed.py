"""A plan beside the graph that it is to run on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.graph.bounds import bounds_of
from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.graph.fullest import peaks_of
from plimsoll_planner.graph.levels import send_seconds
from plimsoll_planner.graph.place import place
from plimsoll_planner.graph.placed import placed_of, require_exact
from plimsoll_planner.graph.transfers import all_sends
from plimsoll_planner.graph.walk import walked_s
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.placement_plan import PlacementPlan
from tests.support.operator_graphs import (
    LINK,
    a_graph_profile,
    a_placement,
    random_graph,
)


@pytest.fixture(name="profile", scope="module")
def fixture_profile() -> GraphProfile:
    """A graph."""
    return random_graph(60, 1)


@pytest.fixture(name="plan", scope="module")
def fixture_plan(profile: GraphProfile) -> PlacementPlan:
    """Its placement on three devices."""
    return place(profile, 3, capacity_bytes=2**40, link=LINK)


def test_a_plan_is_what_follows_from_it(
    profile: GraphProfile, plan: PlacementPlan
) -> None:
    """Sends and peaks are found again from devices, order and window."""
    require_exact(plan, profile)


def test_a_plan_by_hand_is_what_follows_from_it() -> None:
    """The records' example: peaks, sends, bounds and seconds, worked out on paper."""
    profile, plan = a_graph_profile(), a_placement()
    require_exact(plan, profile)
    placed = placed_of(plan, profile)
    assert peaks_of(Curve(placed), profile) == plan.peaks
    assert bounds_of(placed.graph, 2) == plan.bounds
    send_s = send_seconds(placed.graph, LINK)
    found_s = walked_s(placed, all_sends(placed), send_s)
    assert found_s == pytest.approx(plan.makespan_s)


def test_a_plan_of_another_graph_is_refused(plan: PlacementPlan) -> None:
    """Both digests are named."""
    other = random_graph(60, 2)
    with pytest.raises(InvalidInputError, match="place this graph again") as caught:
        placed_of(plan, other)
    assert plan.graph_digest in str(caught.value)
    assert other.graph_digest in str(caught.value)


def test_an_order_that_breaks_an_edge_is_refused(
    profile: GraphProfile, plan: PlacementPlan
) -> None:
    """Both nodes are named."""
    turned = replace(plan, order=tuple(reversed(plan.order)))
    with pytest.raises(InvalidInputError, match=r"runs n\d+ before n\d+"):
        placed_of(turned, profile)


def test_peaks_that_nobody_computed_are_refused(
    profile: GraphProfile, plan: PlacementPlan
) -> None:
    """The device, and both numbers."""
    first, *rest = plan.peaks
    less = replace(
        first, peak_bytes=first.peak_bytes - first.value_bytes, value_bytes=0
    )
    stated = replace(plan, peaks=(less, *rest))
    with pytest.raises(InvalidInputError, match="device 0, and by its order it is"):
        require_exact(stated, profile)


def test_sends_that_do_not_follow_are_refused(
    profile: GraphProfile, plan: PlacementPlan
) -> None:
    """A later window is another plan."""
    with pytest.raises(InvalidInputError, match="sends of the placement"):
        require_exact(replace(plan, send_window=1), profile)


def test_bytes_of_sends_that_nobody_sends_are_refused(
    profile: GraphProfile, plan: PlacementPlan
) -> None:
    """They are the bytes of the values."""
    sends = replace(plan.sends, num_bytes=tuple(n + 1 for n in plan.sends.num_bytes))
    with pytest.raises(InvalidInputError, match="sends of the placement"):
        require_exact(replace(plan, sends=sends), profile)


@pytest.mark.parametrize(("field", "less"), [("cut_bytes", 1), ("work_s", 1e-4)])
def test_bounds_that_nobody_computed_are_refused(
    profile: GraphProfile, plan: PlacementPlan, field: str, less: float
) -> None:
    """The bound, and both numbers."""
    stated = getattr(plan.bounds, field)
    bounds = replace(plan.bounds, **{field: stated - less})
    with pytest.raises(InvalidInputError, match=f"states .* as bound {field}, and by"):
        require_exact(replace(plan, bounds=bounds), profile)
