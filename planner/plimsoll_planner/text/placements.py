"""A placement in words.

In: a `PlacementPlan`. Out: lines of text. Called by whoever shows one.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.placement_plan import (
    Contributor,
    ContributorKind,
    DevicePeak,
    PlacementPlan,
)
from plimsoll_planner.text.counts import counted
from plimsoll_planner.text.plans import duration_text
from plimsoll_planner.units import at_least, at_most

MOST_DEVICES = 8
"""Named one by one: the fullest."""
NOTES = {
    ContributorKind.RECEIVED: "received",
    ContributorKind.TRANSIENT: "working memory",
}
"""Kinds of bytes in words; those of values need none."""
HEURISTIC = (
    "placement is heuristic: peaks are exact for this plan, and it need not be the best"
)


def placement_lines(plan: PlacementPlan) -> Iterator[str]:
    """Yield the lines of a placement."""
    yield (
        f"{verdict_text(plan)}: {counted(len(plan.order), 'operator')} on "
        f"{counted(plan.num_devices, 'device')} of "
        f"{at_most(plan.capacity_bytes)} each ({plan.method})"
    )
    yield seconds_text(plan)
    yield (
        f"sends: {len(plan.sends.node):,}, {at_least(sum(plan.sends.num_bytes))} in "
        "all; links are taken to be never busy"
    )
    for device, peak in fullest_devices(plan):
        yield from device_lines(plan, device, peak)
    yield from rest_lines(plan)
    yield HEURISTIC


def fullest_devices(plan: PlacementPlan) -> list[tuple[int, DevicePeak]]:
    """The fullest devices that are named one by one, by number."""
    return sorted(by_peak(plan)[:MOST_DEVICES])


def by_peak(plan: PlacementPlan) -> list[tuple[int, DevicePeak]]:
    """All devices with their peaks, the fullest first."""
    return sorted(enumerate(plan.peaks), key=lambda one: -one[1].peak_bytes)


def rest_lines(plan: PlacementPlan) -> Iterator[str]:
    """Yield a line for the devices that are not named, if there are any."""
    if rest := by_peak(plan)[MOST_DEVICES:]:
        most = at_least(rest[0][1].peak_bytes)
        yield f"{counted(len(rest), 'other device')}: at most {most}"


def verdict_text(plan: PlacementPlan) -> str:
    """Verdict, and what it rests on."""
    if plan.verdict is Verdict.FITS:
        return "fits"
    if plan.verdict is Verdict.FAILS:
        return f"fails ({failing_text(plan)})"
    return (
        "undecided (none that fits was found, and no bound says that there is none: "
        f"{at_least(plan.bounds.peak_bytes)} is the least that was proven)"
    )


def failing_text(plan: PlacementPlan) -> str:
    """The bound that is above the capacity."""
    bounds, capacity = plan.bounds, plan.capacity_bytes
    for num_bytes, what in (
        (bounds.group_bytes, f"{bounds.largest_group} and what stands with it"),
        (bounds.node_bytes, f"{bounds.largest_node}, its inputs and results"),
        (bounds.states_bytes, "parameters, gradients and optimizer, spread evenly,"),
        (bounds.cut_bytes, "states and saved values, spread evenly,"),
    ):
        if num_bytes > capacity:
            return f"{what} alone need {at_least(num_bytes)} of a device"
    return f"{at_least(bounds.peak_bytes)} are needed"


def seconds_text(plan: PlacementPlan) -> str:
    """Seconds of a step beside what none can be below."""
    bounds = plan.bounds
    least = max(bounds.makespan_s, 1e-12)
    reason = "the longest path"
    if bounds.work_s > bounds.critical_path_s:
        reason = "all work, spread evenly"
    return (
        f"step: {duration_text(plan.makespan_s)} without the optimizer, "
        f"{plan.makespan_s / least:.2f} times {reason}, which none can be below"
    )


def contributor_text(one: Contributor, name: str) -> str:
    """A name for an operator, its bytes, and their kind if they are not its value."""
    note = f" ({NOTES[one.kind]})" if one.kind in NOTES else ""
    return f"{name} {at_least(one.num_bytes)}{note}"


def device_lines(plan: PlacementPlan, device: int, peak: DevicePeak) -> Iterator[str]:
    """Yield the peak of a device, its parts, and the largest of them."""
    share = 100 * peak.peak_bytes / plan.capacity_bytes
    when = f"at operator {peak.place:,} of {len(plan.order):,}"
    if peak.place == len(plan.order):
        when = "as the optimizer steps"
    yield (
        f"device {device}: {at_least(peak.peak_bytes)}, {share:.1f} % of its memory, "
        f"{when}: parameters {at_least(peak.parameter_bytes)}, gradients "
        f"{at_least(peak.gradient_bytes)}, optimizer {at_least(peak.optimizer_bytes)}, "
        f"values {at_least(peak.value_bytes)}, received values "
        f"{at_least(peak.received_bytes)}, working memory "
        f"{at_least(peak.transient_bytes)}"
    )
    largest = [contributor_text(one, one.name) for one in peak.contributors]
    if largest:
        yield f"  largest: {', '.join(largest)}"
