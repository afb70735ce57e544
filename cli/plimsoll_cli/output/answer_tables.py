"""Draws plans, alternatives, tuples and comparisons for a terminal.

In: records. Out: tables of rich. Called by `plan`, `explain` and `compare`. Plain
letters only: a table must also fit a log file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby

from rich.table import Table

from plimsoll_cli.output.tables import BARS, new_table
from plimsoll_planner.records.certificate import CountVerdict
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan, Stage
from plimsoll_planner.text.explain import (
    counted,
    device_noun,
    offer_text,
)
from plimsoll_planner.text.plans import cost_of, nodes_text
from plimsoll_planner.text.rules import RULE_NAMES, rule_lines
from plimsoll_planner.units import at_least, at_most

BAR_LENGTH = 20
PLAN_LESS_IMPORTANT = ("LOWER", "EXPECTED", "PHASE", "RANKS", "IN FLIGHT", "RECOMPUTE")
ALTERNATIVES_LESS_IMPORTANT = ("REPLICAS", "PRICE/H", "COST", "OFFER", "MICRO-BATCH")
"""The devices and the stages imply the replicas."""
TUPLES_LESS_IMPORTANT = ("REPLICAS", "AT MOST SAMPLES/S", "VERDICT", "LEAST PEAK")
LONGEST_OFFERS = 60
"""Columns that the names of like offers take before they fold."""


def plan_table(plan: HybridPlan, capacity_bytes: int) -> Table:
    """Draw a line for each stage; the bar is the upper peak within the capacity."""
    table = new_table(
        (
            ("STAGE", "right"),
            ("LAYERS", "left"),
            ("RANKS", "left"),
            ("IN FLIGHT", "right"),
            ("RECOMPUTE", "right"),
            ("PHASE", "left"),
            ("LOWER", "right"),
            ("EXPECTED", "right"),
            ("UPPER", "right"),
            ("OF CAPACITY", "right"),
            (BARS, "left"),
        )
    )
    for place, stage in enumerate(plan.stages):
        table.add_row(str(place), *stage_cells(stage, capacity_bytes))
    return table


def stage_cells(stage: Stage, capacity_bytes: int) -> list[str]:
    """The cells of one stage."""
    chunk = stage.chunks[0]
    last = chunk.end_layer - 1
    peak = stage.peak()
    cells = [
        span(chunk.first_layer, last),
        span(stage.ranks[0], stage.ranks[-1]),
        str(stage.in_flight_cap),
        f"{len(stage.recomputed_layers)} of {last - chunk.first_layer + 1}",
    ]
    if peak is None:
        return [*cells, *"-----", ""]
    device = peak.device
    return [
        *cells,
        str(peak.phase),
        at_most(device.lower_bytes),
        at_least(device.expected_bytes),
        at_least(device.upper_bytes),
        *filling(device.upper_bytes, capacity_bytes),
    ]


def span(first: int, last: int) -> str:
    """A run of numbers."""
    return str(first) if first == last else f"{first}-{last}"


def filling(num_bytes: int, capacity_bytes: int) -> tuple[str, str]:
    """Fill level of a device, in words and as a bar."""
    part = num_bytes / max(capacity_bytes, 1)
    filled = min(round(part * BAR_LENGTH), BAR_LENGTH)
    mark = " over" if part > 1 else ""
    return f"{part:.0%}{mark}", f"{'#' * filled}{'.' * (BAR_LENGTH - filled)}"


def plan_line(plan: HybridPlan) -> str:
    """Mesh, batch, time and price in one line."""
    parts = [f"{offer_text(plan.offers[0])}: {mesh_text(plan)}"]
    parts.append(f"micro-batch {plan.micro_batch} x {plan.num_micro_batches}")
    if plan.step_time is not None:
        time = plan.step_time
        rate = plan.samples_per_s or 0.0
        parts.append(
            f"step {time.expected_s:.4g} s ({time.lower_s:.4g} to {time.upper_s:.4g}), "
            f"{rate:.4g} samples/s"
        )
    parts.append(nodes_text(plan))
    if plan.price_per_hour is not None:
        parts.append(f"{plan.price_per_hour:.2f} {plan.currency}/h")
    return "; ".join(parts)


def mesh_text(plan: HybridPlan) -> str:
    """P x D."""
    mesh = plan.mesh
    if mesh is None:
        return "uneven mesh"
    return f"{counted(mesh.pipeline, 'stage')} x {counted(mesh.data, 'replica')}"


def alternatives_table(plans: Sequence[HybridPlan], num_steps: int | None) -> Table:
    """Draw what else could be had; money only where there is a price."""
    rows = [alternative_cells(plan, num_steps) for plan in plans]
    known = {heading for row in rows for heading in row if row[heading] != "-"}
    headings = [heading for heading in rows[0] if heading in known]
    table = new_table(
        (heading, "left" if heading == "OFFER" else "right") for heading in headings
    )
    for row in rows:
        table.add_row(*(row[heading] for heading in headings))
    return table


def alternative_cells(plan: HybridPlan, num_steps: int | None) -> dict[str, str]:
    """Cells of one plan, with a dash if a value is not known."""
    mesh = plan.mesh
    return {
        f"{device_noun(plan.offers)}s".upper(): str(plan.num_gpus),
        "OFFER": offer_text(plan.offers[0]),
        "STAGES": str(mesh.pipeline) if mesh else "-",
        "REPLICAS": str(mesh.data) if mesh else "-",
        "MICRO-BATCH": str(plan.micro_batch),
        "PEAK": at_least(plan.peak_bytes or 0),
        "SAMPLES/S": f"{plan.samples_per_s or 0:.4g}",
        "PRICE/H": money(plan.price_per_hour, plan),
        "COST": money(cost_of(plan, num_steps), plan),
    }


def money(amount: Decimal | None, plan: HybridPlan) -> str:
    """An amount in the plan's currency."""
    return "-" if amount is None else f"{amount:.2f} {plan.currency}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TupleGroup:
    """Tuples of one mesh and offer, of micro-batches in a row, alike in the verdict."""

    mesh: tuple[int, int]
    offer: str
    ending: tuple[str, str]
    """Verdict and rule."""
    micro_batches: str
    least_peak: str
    most_rate: str


def grouped(count: CountVerdict, offers: Sequence[Offer]) -> list[TupleGroup]:
    """The tuples of one count in groups, in order of stages and offer."""
    found = count.decisions
    places = sorted(
        range(len(found.rule)),
        key=lambda i: (found.pipeline_degree[i], found.offer[i], found.micro_batch[i]),
    )

    def alike(i: int) -> tuple[int, int, str, str]:
        ending = (found.verdict[i], found.rule[i])
        return (found.pipeline_degree[i], found.offer[i], *ending)

    groups: list[TupleGroup] = []
    for _, mine in groupby(places, key=alike):
        run = list(mine)
        first, last = run[0], run[-1]
        least = min(found.least_lower_bytes[i] for i in run)
        rate = max(found.best_samples_per_s[i] for i in run)
        groups.append(
            TupleGroup(
                mesh=(found.pipeline_degree[first], found.data_degree[first]),
                offer=offer_text(offers[found.offer[first]]),
                ending=(found.verdict[first], RULE_NAMES[found.rule[first]]),
                micro_batches=span(
                    found.micro_batch[first], found.largest_micro_batch[last]
                ),
                least_peak=at_least(least) if least else "-",
                most_rate=f"{rate:.4g}" if rate else "-",
            )
        )
    return groups


def tuples_table(count: CountVerdict, offers: Sequence[Offer]) -> Table:
    """Draw the tuples of one count with the rule that decided them, like ones once."""
    table = new_table(
        (
            ("STAGES", "right"),
            ("REPLICAS", "right"),
            ("MICRO-BATCH", "right"),
            ("OFFER", "left"),
            ("VERDICT", "left"),
            ("DECIDED BY", "left"),
            ("LEAST PEAK", "right"),
            ("AT MOST SAMPLES/S", "right"),
        )
    )
    offer_column = table.columns[3]
    offer_column.no_wrap, offer_column.max_width = False, LONGEST_OFFERS
    rows: dict[TupleGroup, list[str]] = {}
    for group in grouped(count, offers):
        rows.setdefault(replace(group, offer=""), []).append(group.offer)
    for group, names in rows.items():
        table.add_row(
            *(str(group.mesh[0]), str(group.mesh[1]), group.micro_batches),
            "all" if len(names) == len(offers) > 1 else ", ".join(names),
            *group.ending,
            group.least_peak,
            group.most_rate,
        )
    return table


def tuples_legend(count: CountVerdict) -> list[str]:
    """Meaning of the columns, and the rules that occur in the table."""
    return [
        "LEAST PEAK: the fullest rank of every plan of the row needs that or more; "
        "where a quick bound decided (all rules but least memory), more is needed",
        "AT MOST SAMPLES/S: no plan of the row is faster",
        *rule_lines(count.decisions.rule),
    ]
