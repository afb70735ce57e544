"""Draws plans, alternatives, tuples and comparisons for a terminal.

In: records. Out: tables of rich. Called by `plan`, `explain`, `run`, and
for pages. Plain letters only: a table must also fit a log file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import JustifyMethod
from rich.table import Table

from plimsoll_cli.output.rate_floor import RateFloor
from plimsoll_cli.output.tables import BARS, money, new_table, table_of, telling_columns
from plimsoll_planner.records.certificate import CountVerdict, Decisions
from plimsoll_planner.records.engine import Schedule, Sharding
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan, Stage
from plimsoll_planner.text.counts import counted, device_noun
from plimsoll_planner.text.explain import offer_text
from plimsoll_planner.text.plans import cost_of, each_of, nodes_text
from plimsoll_planner.text.rules import RULE_NAMES, rule_lines
from plimsoll_planner.units import at_least, at_most, number_text

BAR_LENGTH = 20
PLAN_LESS_IMPORTANT = ("LOWER", "EXPECTED", "PHASE", "RANKS", "IN FLIGHT", "RECOMPUTE")
ALTERNATIVES_LESS_IMPORTANT = (
    *("REPLICAS", "PRICE/H", "COST"),
    *("OPTIMIZER", "SHARDED", "OFFER", "MICRO-BATCH"),
)
"""The devices and the stages imply the replicas."""
TUPLES_LESS_IMPORTANT = ("REPLICAS", "AT MOST SAMPLES/S", "VERDICT", "LEAST PEAK")
TUPLE_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("STAGES", "right"),
    ("REPLICAS", "right"),
    ("MICRO-BATCH", "right"),
    ("OFFER", "left"),
    ("VERDICT", "left"),
    ("DECIDED BY", "left"),
    ("LEAST PEAK", "right"),
    ("AT MOST SAMPLES/S", "right"),
)
TENSOR_COLUMN: tuple[str, JustifyMethod] = ("TENSOR", "right")
"""Behind the replicas, where layers are split in some tuple."""
DEVICES_COLUMN: tuple[str, JustifyMethod] = ("DEVICES", "right")
"""In the place of the stages, where operators are placed."""
OFFER_PLACE = 3
ANY_RATE = RateFloor()
LONGEST_OFFERS = 60
"""Columns that the names of like offers take before they fold."""


def plan_table(plan: HybridPlan, capacity_bytes: int) -> Table:
    """A line for each stage; the bar is the upper peak within the capacity."""
    more = techniques_of(plan)
    rows = [
        {"STAGE": str(place), **stage_cells(stage, capacity_bytes, more)}
        for place, stage in enumerate(plan.stages)
    ]
    return table_of(rows, left=("LAYERS", "RANKS", "PHASE", *more, BARS))


def techniques_of(plan: HybridPlan) -> tuple[str, ...]:
    """Columns of the techniques that some stage has."""
    used = {
        "SHARDED": any(one.sharding is not Sharding.NONE for one in plan.stages),
        "OPTIMIZER": any(one.steps_on_host for one in plan.stages),
        "OFFLOAD": any(one.offloaded_layers for one in plan.stages),
        "ON HOST": any(one.host_bytes for one in plan.stages),
    }
    return tuple(name for name, is_used in used.items() if is_used)


def technique_cells(stage: Stage) -> dict[str, str]:
    """Cells of a stage for all of these columns."""
    return {
        "SHARDED": str(stage.sharding),
        "OPTIMIZER": str(stage.optimizer_home),
        "OFFLOAD": part_of(stage.offloaded_layers, [stage]),
        "ON HOST": at_least(stage.host_bytes),
    }


def part_of(layers: Collection[int], stages: Iterable[Stage]) -> str:
    """How many layers of some stages these are; a dash if none."""
    chunks = [chunk for stage in stages for chunk in stage.chunks]
    num_layers = sum(chunk.end_layer - chunk.first_layer for chunk in chunks)
    return f"{len(layers)} of {num_layers}" if layers else "-"


def stage_cells(
    stage: Stage, capacity_bytes: int, techniques: Sequence[str] = ()
) -> dict[str, str]:
    """The cells of one stage, with a dash for a peak that nobody predicted.

    With columns of some techniques.
    """
    chunk, peak = stage.chunks[0], stage.peak()
    num_layers = chunk.end_layer - chunk.first_layer
    device = peak and peak.device
    part, bar = filling(device.upper_bytes, capacity_bytes) if device else ("-", "")
    return {
        "LAYERS": span(chunk.first_layer, chunk.end_layer - 1),
        "RANKS": span(stage.ranks[0], stage.ranks[-1]),
        "IN FLIGHT": str(stage.in_flight_cap),
        "RECOMPUTE": f"{len(stage.recomputed_layers)} of {num_layers}",
        **{name: technique_cells(stage)[name] for name in techniques},
        "PHASE": str(peak.phase) if peak else "-",
        "LOWER": at_most(device.lower_bytes) if device else "-",
        "EXPECTED": at_least(device.expected_bytes) if device else "-",
        "UPPER": at_least(device.upper_bytes) if device else "-",
        "OF CAPACITY": part,
        BARS: bar,
    }


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
    parts = [
        f"{offer_text(plan.offers[0])}: {mesh_text(plan)}",
        f"micro-batch {plan.micro_batch} x {plan.num_micro_batches}",
    ]
    if (time := plan.step_time) is not None:
        parts.append(
            f"step {number_text(time.expected_s)} s ({number_text(time.lower_s)} to "
            f"{number_text(time.upper_s)}), "
            f"{number_text(plan.samples_per_s or 0.0)} samples/s"
        )
    parts.append(nodes_text(plan))
    if plan.price_per_hour is not None:
        parts.append(f"{plan.price_per_hour:.2f} {plan.currency}/h")
    return "; ".join(parts)


def mesh_text(plan: HybridPlan) -> str:
    """P x D with what replicas divide, and T if layers are split."""
    mesh, variant = plan.mesh, plan.stages[0].variant
    if mesh is None:
        return "uneven mesh"
    replicas = counted(mesh.data, "replica")
    if plan.placement is not None:
        return f"operators on {counted(mesh.pipeline, 'device')} x {replicas}"
    text = f"{counted(mesh.pipeline, 'stage')} x {replicas}"
    levels = each_of(stage.sharding for stage in plan.stages)
    if levels != Sharding.NONE:
        text += f" (sharded: {levels})"
    if mesh.tensor == 1:
        return text
    how = " (sequence parallel)" if variant.sequence_parallel else ""
    return f"{text} x tensor degree {mesh.tensor}{how}"


def alternatives_table(
    plans: Sequence[HybridPlan], num_steps: int | None, floor: RateFloor = ANY_RATE
) -> Table:
    """The other plans that could be had; money only if there is a price."""
    left = ("OFFER", "SHARDED", "OPTIMIZER", "NOTE")
    return table_of(alternative_rows(plans, num_steps, floor), left=left)


def alternative_rows(
    plans: Sequence[HybridPlan], num_steps: int | None, floor: RateFloor = ANY_RATE
) -> list[dict[str, str]]:
    """Rows of plans, without columns in which no plan has anything to tell."""
    rows = [alternative_cells(plan, num_steps, floor) for plan in plans]
    return telling_columns(rows)


def alternative_cells(
    plan: HybridPlan, num_steps: int | None, floor: RateFloor
) -> dict[str, str]:
    """Cells of one plan, with a dash if a value is not known."""
    mesh = plan.mesh
    return {
        f"{device_noun(plan.offers)}s".upper(): str(plan.num_gpus),
        "OFFER": offer_text(plan.offers[0]),
        "STAGES": str(mesh.pipeline) if mesh and plan.placement is None else "-",
        "REPLICAS": str(mesh.data) if mesh else "-",
        "TENSOR": str(mesh.tensor) if mesh else "-",
        "MICRO-BATCH": str(plan.micro_batch),
        "SHARDED": each_of(stage.sharding for stage in plan.stages),
        "OPTIMIZER": each_of(stage.optimizer_home for stage in plan.stages),
        "OFFLOAD": part_of(
            [layer for stage in plan.stages for layer in stage.offloaded_layers],
            plan.stages,
        ),
        "PEAK": at_least(plan.peak_bytes or 0),
        "SAMPLES/S": number_text(plan.samples_per_s or 0.0),
        "PRICE/H": money(plan.price_per_hour, plan.currency),
        "COST": money(cost_of(plan, num_steps), plan.currency),
        "NOTE": floor.fault(plan.num_gpus, plan.samples_per_s or 0.0) or "-",
    }


def tuples_table(count: CountVerdict, offers: Sequence[Offer]) -> Table:
    """The tuples of one count with the rule that decided them, in order of stages.

    Micro-batches in a row that were decided alike are one row, and so are offers.
    """
    has_tensor = count.decisions.has_tensor
    tensor, place = (TENSOR_COLUMN,) * has_tensor, OFFER_PLACE + has_tensor
    columns = (*TUPLE_COLUMNS[:2], *tensor, *TUPLE_COLUMNS[2:])
    if Schedule.PLACED in count.decisions.schedule:
        columns = (DEVICES_COLUMN, *columns[1:])
    table = new_table(columns)
    offer_column = table.columns[place]
    offer_column.no_wrap, offer_column.max_width = False, LONGEST_OFFERS
    rows: dict[tuple[str, ...], list[str]] = {}
    for run in runs_alike(count.decisions):
        offer = offers[count.decisions.offer[run[0]]]
        rows.setdefault(run_cells(count.decisions, run), []).append(offer_text(offer))
    for cells, names in rows.items():
        shown = "all" if len(names) == len(offers) > 1 else ", ".join(names)
        table.add_row(*cells[:place], shown, *cells[place:])
    return table


def runs_alike(found: Decisions) -> Iterator[list[int]]:
    """Yield places of tuples of one mesh and offer, in a row and decided alike."""

    def mesh(i: int) -> tuple[int, str, int]:
        return found.pipeline_degree[i], tensor_text(found, i), found.offer[i]

    def alike(i: int) -> tuple[tuple[int, str, int], str, str]:
        return mesh(i), found.verdict[i], found.rule[i]

    places = sorted(
        range(len(found.rule)), key=lambda i: (*mesh(i), found.micro_batch[i])
    )
    for _, mine in groupby(places, key=alike):
        yield list(mine)


def tensor_text(found: Decisions, place: int) -> str:
    """Tensor degree of a tuple, `2` or `2 sp` if sequence parallel."""
    flags = found.sequence_parallel
    how = " sp" if flags and flags[place] else ""
    return f"{found.tensor_degree[place]}{how}"


def run_cells(found: Decisions, run: list[int]) -> tuple[str, ...]:
    """The cells of tuples that were decided alike, without their offer."""
    first, last = run[0], run[-1]
    least = min(found.least_lower_bytes[i] for i in run)
    rate = max(found.best_samples_per_s[i] for i in run)
    return (
        str(found.pipeline_degree[first]),
        str(found.data_degree[first]),
        *([tensor_text(found, first)] if found.has_tensor else []),
        span(found.micro_batch[first], found.largest_micro_batch[last]),
        found.verdict[first],
        RULE_NAMES[found.rule[first]],
        at_least(least) if least else "-",
        number_text(rate) if rate else "-",
    )


def tuples_legend(count: CountVerdict) -> list[str]:
    """Meaning of the columns, and the rules that occur in the table."""
    return [
        "LEAST PEAK: the fullest rank of every plan of the row needs that or more; "
        "where a quick bound decided (all rules but least memory), more is needed",
        "AT MOST SAMPLES/S: no plan of the row is faster",
        *rule_lines(count.decisions.rule, has_tensor=count.decisions.has_tensor),
    ]
