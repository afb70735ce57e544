"""Draws plans, alternatives, tuples and comparisons for a terminal.

In: records. Out: tables of rich. Called by `plan`, `explain` and `compare`. Plain
letters only: a table must also fit a log file.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from plimsoll_cli.output import new_table
from plimsoll_planner.records.certificate import CountVerdict
from plimsoll_planner.records.offer import CapacityType, Offer
from plimsoll_planner.records.plan import HybridPlan, Stage
from plimsoll_planner.units import at_least, at_most

BAR_LENGTH = 20


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
            ("OF CAPACITY", "left"),
        )
    )
    for place, stage in enumerate(plan.stages):
        table.add_row(str(place), *stage_cells(stage, capacity_bytes))
    return table


def stage_cells(stage: Stage, capacity_bytes: int) -> list[str]:
    """Return the cells of one stage."""
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
        return [*cells, "-", "-", "-", "-", "-"]
    device = peak.device
    return [
        *cells,
        str(peak.phase),
        at_most(device.lower_bytes),
        at_least(device.expected_bytes),
        at_least(device.upper_bytes),
        bar(device.upper_bytes, capacity_bytes),
    ]


def span(first: int, last: int) -> str:
    """Return a run of numbers."""
    return str(first) if first == last else f"{first}-{last}"


def bar(num_bytes: int, capacity_bytes: int) -> str:
    """Return how full a device is, with a mark behind a full one."""
    part = num_bytes / max(capacity_bytes, 1)
    filled = min(round(part * BAR_LENGTH), BAR_LENGTH)
    mark = " over" if part > 1 else ""
    return f"{'#' * filled}{'.' * (BAR_LENGTH - filled)} {part:.0%}{mark}"


def plan_line(plan: HybridPlan) -> str:
    """Return mesh, batch, time and price in one line."""
    parts = [f"{offer_text(plan.offers[0])}: {mesh_text(plan)}"]
    parts.append(f"micro-batch {plan.micro_batch} x {plan.num_micro_batches}")
    if plan.step_time is not None:
        time = plan.step_time
        rate = plan.samples_per_s or 0.0
        parts.append(
            f"step {time.expected_s:.4g} s ({time.lower_s:.4g} to {time.upper_s:.4g}), "
            f"{rate:.4g} samples/s"
        )
    if plan.price_per_hour is not None:
        parts.append(f"{plan.price_per_hour:.2f} {plan.currency}/h")
    return "; ".join(parts)


def mesh_text(plan: HybridPlan) -> str:
    """Return P x D."""
    mesh = plan.mesh()
    if mesh is None:
        return "uneven mesh"
    stages = "stage" if mesh[0] == 1 else "stages"
    replicas = "replica" if mesh[1] == 1 else "replicas"
    return f"{mesh[0]} {stages} x {mesh[1]} {replicas}"


def offer_text(offer: Offer) -> str:
    """Return the name of an offer, with its terms where they are special."""
    if offer.capacity_type is CapacityType.ON_DEMAND:
        return offer.name
    return f"{offer.name} ({offer.capacity_type})"


def alternatives_table(plans: Sequence[HybridPlan]) -> Table:
    """Draw what else could be had."""
    table = new_table(
        (
            ("GPUS", "right"),
            ("OFFER", "left"),
            ("STAGES", "right"),
            ("REPLICAS", "right"),
            ("MICRO-BATCH", "right"),
            ("PEAK", "right"),
            ("SAMPLES/S", "right"),
            ("PRICE/H", "right"),
        )
    )
    for plan in plans:
        mesh = plan.mesh() or (0, 0, 0)
        price = plan.price_per_hour
        table.add_row(
            str(plan.num_gpus),
            offer_text(plan.offers[0]),
            str(mesh[0]),
            str(mesh[1]),
            str(plan.micro_batch),
            at_least(plan.peak_bytes or 0),
            f"{plan.samples_per_s or 0:.4g}",
            "-" if price is None else f"{price:.2f} {plan.currency}",
        )
    return table


def tuples_table(count: CountVerdict, offers: Sequence[Offer]) -> Table:
    """Draw every tuple of one count, with the rule that decided it."""
    table = new_table(
        (
            ("STAGES", "right"),
            ("REPLICAS", "right"),
            ("MICRO-BATCH", "right"),
            ("OFFER", "left"),
            ("VERDICT", "left"),
            ("RULE", "left"),
            ("LEAST PEAK", "right"),
            ("AT MOST SAMPLES/S", "right"),
        )
    )
    found = count.decisions
    for place, rule in enumerate(found.rule):
        least = found.least_lower_bytes[place]
        rate = found.best_samples_per_s[place]
        table.add_row(
            str(found.pipeline_degree[place]),
            str(found.data_degree[place]),
            str(found.micro_batch[place]),
            offer_text(offers[found.offer[place]]),
            found.verdict[place],
            rule,
            at_least(least) if least else "-",
            f"{rate:.4g}" if rate else "-",
        )
    return table
