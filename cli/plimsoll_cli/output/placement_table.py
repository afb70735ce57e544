"""Devices on which operators are placed, as a table: peaks, their parts and places.

In: a plan. Out: a table of rich, and lines. Called by `plan`, `run` and `describe`,
which print stages where a plan has layers.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from plimsoll_cli.output.answer_tables import (
    PLAN_LESS_IMPORTANT,
    filling,
    plan_table,
    span,
)
from plimsoll_cli.output.console import say
from plimsoll_cli.output.tables import BARS, print_table, table_of, telling_columns
from plimsoll_planner.records.placement_plan import DevicePeak, PlacementPlan
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.text.placements import (
    contributor_text,
    fullest_devices,
    rest_lines,
)
from plimsoll_planner.units import at_least

LESS_IMPORTANT = (
    *("RANKS", "WORKING MEMORY", "GRADIENTS", "OPTIMIZER", "PARAMETERS"),
    *("RECEIVED", "VALUES", "PEAK AT"),
)
MOST_LARGEST = 3
"""Contributors of a peak that are printed."""
MOST_NAME = 40
"""Letters of an operator's name; of a longer one the middle is left out."""
STEP = "optimizer step"
"""Place of a peak behind all operators."""


def print_plan(plan: HybridPlan, capacity_bytes: int) -> None:
    """Print how full the devices of a plan are: stage by stage, or one by one.

    Args:
        plan: what is planned.
        capacity_bytes: of a device; a placement states its own, of tensors.
    """
    if plan.placement is None:
        table = plan_table(plan, capacity_bytes)
        print_table(table, less_important=PLAN_LESS_IMPORTANT)
        return
    print_table(placement_table(plan, plan.placement), less_important=LESS_IMPORTANT)
    say(*contributor_lines(plan.placement), *rest_lines(plan.placement))


def placement_table(plan: HybridPlan, placement: PlacementPlan) -> Table:
    """A line for each of the fullest devices; bars are parts of the capacity."""
    rows = [
        {
            "DEVICE": str(device),
            "RANKS": ranks_text(plan.stages[device].ranks),
            **device_cells(placement, peak),
        }
        for device, peak in fullest_devices(placement)
    ]
    return table_of(telling_columns(rows), left=("RANKS", "PEAK AT", BARS))


def ranks_text(ranks: tuple[int, ...]) -> str:
    """Replicas of a device; a dash where it is alone, and the rank is its number."""
    return span(ranks[0], ranks[-1]) if len(ranks) > 1 else "-"


def device_cells(placement: PlacementPlan, peak: DevicePeak) -> dict[str, str]:
    """Cells of one device: its peak and all parts of it, bytes of tensors."""
    part, bar = filling(peak.peak_bytes, placement.capacity_bytes)
    return {
        "PEAK": at_least(peak.peak_bytes),
        "OF CAPACITY": part,
        "PEAK AT": place_text(placement, peak),
        **{
            name.upper(): at_least(num_bytes) if num_bytes else "-"
            for name, num_bytes in parts_of(peak).items()
        },
        BARS: bar,
    }


def parts_of(peak: DevicePeak) -> dict[str, int]:
    """Parts of a peak, bytes."""
    return {
        "parameters": peak.parameter_bytes,
        "gradients": peak.gradient_bytes,
        "optimizer": peak.optimizer_bytes,
        "values": peak.value_bytes,
        "received": peak.received_bytes,
        "working memory": peak.transient_bytes,
    }


def place_text(placement: PlacementPlan, peak: DevicePeak) -> str:
    """Place of a peak in the order of all operators."""
    length = len(placement.order)
    return STEP if peak.place == length else f"operator {peak.place:,} of {length:,}"


def contributor_lines(placement: PlacementPlan) -> Iterator[str]:
    """Yield the largest values at the peak of each device, if there are any."""
    for device, peak in fullest_devices(placement):
        largest = [
            contributor_text(one, shortened(one.name))
            for one in peak.contributors[:MOST_LARGEST]
        ]
        if largest:
            yield f"largest on device {device}: {', '.join(largest)}"


def shortened(name: str, most: int = MOST_NAME) -> str:
    """A name without its middle if it is long: both ends tell names apart.

    More is left of the end, which is the operator's own name.
    """
    if len(name) <= most:
        return name
    head = most // 4
    return f"{name[:head]}…{name[head + 1 - most :]}"
