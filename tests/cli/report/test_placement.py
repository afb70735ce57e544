"""Memory over a step in the report: charts that reach the peaks, and their numbers."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from benchmarks.support.towers import towers
from plimsoll_cli.report.page import report_html
from plimsoll_cli.report.placement import (
    MOST_POINTS,
    PlacementView,
    placement_view,
    size_text,
)
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_planner.records.graph_profile import GraphProfile, ProfiledGraph
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.placement_plan import DevicePeak
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.text.placements import NOTES
from tests.support.placed_questions import a_placed_question, a_tight_question
from tests.support.questions import a_device
from tests.support.reports import a_record


def view_of(record: RunRecord) -> PlacementView:
    """The section of a record, which has one."""
    assert record.plan is not None
    view = placement_view(record, record.plan)
    assert view is not None
    return view


def peaks_of(record: RunRecord) -> list[DevicePeak]:
    """Peaks of the devices of its plan, the fullest first."""
    assert record.plan is not None
    assert record.plan.placement is not None
    return sorted(record.plan.placement.peaks, key=lambda one: -one.peak_bytes)


def corners(area: str) -> list[tuple[float, float]]:
    """Corners of a path of steps."""
    found = re.findall(r"H([0-9.e+-]+)V([0-9.e+-]+)", area)
    return [(float(x), float(y)) for x, y in found]


def test_the_page_has_the_numbers_of_the_peaks() -> None:
    """Of each device: its peak, all parts, and what is largest."""
    record = a_record(a_tight_question())
    view, page = view_of(record), report_html(record)
    assert view.take in page
    assert view.take.startswith("Device 0 is the fullest: ")
    assert "100.0% of the load line" in view.take
    for device, peak in zip(view.devices, peaks_of(record), strict=True):
        row = dict(zip(view.headings, device.cells, strict=True))
        assert row["Peak"] == size_text(peak.peak_bytes)
        assert row["Parameters"] == size_text(peak.parameter_bytes)
        assert row["Gradients"] == size_text(peak.gradient_bytes)
        assert row["Optimizer"] == size_text(peak.optimizer_bytes)
        assert row["Values"] == size_text(peak.value_bytes)
        assert row["Received"] == size_text(peak.received_bytes)
        assert row["Working memory"] == "0 B"
        assert all(f">{cell}<" in page for cell in device.cells)
        assert [one.name for one in device.largest] == [
            one.name for one in peak.contributors
        ]
        for shown, one in zip(device.largest, peak.contributors, strict=True):
            assert shown.text == size_text(one.num_bytes)
            assert shown.note == NOTES.get(one.kind, "")
            assert f'title="{one.name}"' in page


def test_an_area_reaches_the_peak_and_never_beyond() -> None:
    """The mark is on its top, below the load line or on it; states are a band."""
    record = a_record(a_tight_question())
    for device, peak in zip(view_of(record).devices, peaks_of(record), strict=True):
        chart = device.chart
        assert chart is not None
        assert chart.rule is not None
        [mark] = chart.marks
        assert min(y for _, y in corners(chart.area)) == mark.y >= chart.rule[0]
        assert any(y == mark.y and abs(x - mark.x) < 2 for x, y in corners(chart.area))
        xs = [x for x, _ in corners(chart.area)]
        assert xs == sorted(xs)
        assert chart.band is not None
        assert chart.band[0] == max(y for _, y in corners(chart.area))
        assert size_text(peak.state_bytes) in chart.spoken
        assert device.title == chart.title


def test_a_long_order_is_thinned_and_keeps_the_peak() -> None:
    """At most so many steps are drawn, of ten times as many moments."""
    record = a_record(of_graph(towers(3000, 4)))
    for device in view_of(record).devices:
        assert device.chart is not None
        found = corners(device.chart.area)
        assert len(found) <= MOST_POINTS + 1
        assert min(y for _, y in found) == device.chart.marks[0].y


def of_graph(graph: GraphProfile, num_devices: int = 2) -> Problem:
    """Ask to place one graph on so many devices."""
    profile = replace(
        a_placed_question().profile, graphs=(ProfiledGraph(micro_batch=1, graph=graph),)
    )
    limits = Limits(
        max_gpus=num_devices, pipeline_degrees=(num_devices,), data_degrees=(1,)
    )
    device = a_device(2**34, devices_per_node=16)
    return a_placed_question(profile=profile, limits=limits, offers=(device,))


def test_of_many_devices_the_fullest_are_shown() -> None:
    """Eight of them; a load line far above is named and not drawn."""
    record = a_record(of_graph(towers(200, 4), 10))
    view = view_of(record)
    assert len(view.devices) == 8
    assert view.note.startswith("2 other devices: at most ")
    assert view.take.endswith(
        "of the load line of 16.00 GiB, which is above the charts."
    )
    assert all(device.chart and not device.chart.rule for device in view.devices)


def test_replicas_are_the_ranks_of_a_device() -> None:
    """A column says which, where there are several."""
    question = a_placed_question(override=Override(num_gpus=2, data_degree=2))
    view = view_of(a_record(question))
    assert view.headings[:2] == ("Device", "Ranks")
    assert view.devices[0].cells[:2] == ("device 0", "0-1")
    assert "Ranks" not in view_of(a_record(a_placed_question())).headings


@pytest.mark.parametrize("is_known", [False, True])
def test_without_its_graph_a_placement_has_numbers_and_no_chart(
    is_known: bool,
) -> None:
    """No problem is there, or one whose graph was captured again and is another."""
    record = a_record(a_tight_question())
    assert record.problem is not None
    found = ProfiledGraph(micro_batch=1, graph=towers(160, 4, seed=9))
    profile = replace(record.problem.profile, graphs=(found,))
    other = replace(record.problem, profile=profile) if is_known else None
    view = view_of(replace(record, problem=other))
    assert not view.has_charts
    assert len(view.devices) == 2
    assert view.devices[0].title in report_html(replace(record, problem=other))


def test_a_plan_of_layers_has_no_such_section() -> None:
    """Its memory over time follows from its schedule."""
    record = a_record()
    assert record.plan is not None
    assert placement_view(record, record.plan) is None
