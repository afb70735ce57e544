"""Placements in words."""

from __future__ import annotations

from dataclasses import replace

from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.placement_plan import Contributor, ContributorKind
from plimsoll_planner.text.placements import (
    MOST_DEVICES,
    fullest_devices,
    placement_lines,
    rest_lines,
)
from tests.support.operator_graphs import a_placement


def test_a_placement_that_fits() -> None:
    """Devices against their memory, their largest parts, seconds against the bound."""
    assert list(placement_lines(a_placement())) == [
        "fits: 3 operators on 2 devices of 1000 B each (by hand)",
        "step: 0.0034 s without the optimizer, 1.13 times the longest path, which none "
        "can be below",
        "sends: 2, 200 B in all; links are taken to be never busy",
        "device 0: 500 B, 50.0 % of its memory, at operator 0 of 3: parameters 100 B, "
        "gradients 100 B, optimizer 200 B, values 100 B, received "
        "values 0 B, working memory 0 B",
        "  largest: n0 100 B",
        "device 1: 210 B, 21.0 % of its memory, at operator 2 of 3: parameters 0 B, "
        "gradients 0 B, optimizer 0 B, values 110 B, received values "
        "100 B, working memory 0 B",
        "  largest: n2 100 B, n0 100 B (received), n1 10 B",
        "placement is heuristic: peaks are exact for this plan, and it need not be the "
        "best",
    ]


def test_a_workspace_is_marked_among_the_largest() -> None:
    """Else an operator and what it takes while it runs would be two equal lines."""
    plan = a_placement()
    fuller, less = plan.peaks
    largest = (
        Contributor(name="n0", num_bytes=300, kind=ContributorKind.TRANSIENT),
        Contributor(name="n0", num_bytes=100, kind=ContributorKind.VALUE),
    )
    peaks = (replace(fuller, contributors=largest), less)
    lines = placement_lines(replace(plan, peaks=peaks))
    assert "  largest: n0 300 B (working memory), n0 100 B" in lines


def test_a_placement_that_fails_names_the_bound() -> None:
    """The group that no device holds."""
    first, *_ = placement_lines(a_placement(capacity_bytes=499, verdict=Verdict.FAILS))
    assert first.startswith("fails (n0 and what stands with it alone need 500 B of a")


def test_a_placement_that_is_open_says_what_is_proven() -> None:
    """The heuristic found none that fits, and that is no proof."""
    plan = a_placement()
    less = replace(plan.bounds, group_bytes=400, node_bytes=410)
    first, *_ = placement_lines(
        replace(plan, capacity_bytes=450, bounds=less, verdict=Verdict.UNDECIDED)
    )
    assert first.startswith("undecided (none that fits was found")
    assert "410 B is the least that was proven" in first


def test_of_many_devices_the_fullest_are_named() -> None:
    """The rest has a line together, with its largest peak."""
    plan = a_placement()
    fuller, less = plan.peaks
    small = replace(less, peak_bytes=7, value_bytes=7, received_bytes=0)
    many = (small, less, *[fuller] * (MOST_DEVICES - 1), small)
    found = replace(plan, num_devices=len(many), peaks=many)
    assert [device for device, _ in fullest_devices(found)] == [1, *range(2, 9)]
    assert list(rest_lines(found)) == ["2 other devices: at most 7 B"]
    assert list(rest_lines(plan)) == []
