"""Other numbers of devices and micro-batches: cells in words, as a table and lines.

In: an answer with a `Grid`. Out: a `KindOfDevice` for each offer, tables, sentences.
Called by `plan`, and by the report for its own tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from rich.table import Table

from plimsoll_cli.output.frontier_table import rate_text
from plimsoll_cli.output.rate_floor import RateFloor
from plimsoll_cli.output.scales import ByteScale, seconds_text
from plimsoll_cli.output.tables import money, table_of
from plimsoll_planner.records.certificate import Binding, Certificate
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.frontier import FrontierPoint
from plimsoll_planner.records.grid import Grid, GridCell
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.text.counts import counted, device_noun
from plimsoll_planner.text.explain import REASONS, offer_text
from plimsoll_planner.text.plans import duration_text, each_of
from plimsoll_planner.units import S_PER_HOUR, number_text

NOT_SEARCHED = "not searched"
WHY = REASONS | {
    Binding.HOST_MEMORY: "the memory of the machine is too small",
    Binding.RATE: "too slow for what was asked",
    Binding.ENGINE: "fewer micro-batches than stages",
}
"""Reasons for which a cell fails, besides the memory of the device."""
SHORT = {
    Binding.BATCH: "batch",
    Binding.ENGINE: "few micro-batches",
    Binding.GPU_LIMIT: "limits",
    Binding.TENSOR_GROUP: "tensor degree",
    Binding.HOST_MEMORY: "host memory",
    Binding.RATE: "too slow",
}
"""Reasons, short enough for a cell."""
PER_MANY = 1000
"""Samples that a price is stated of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellWords:
    """One cell; what there is nothing to say of is empty."""

    cell: GridCell
    verdict: str
    """One of the three verdicts, or that it was not searched."""
    peak: str
    """Upper bound of the plan, or what every plan needs at least."""
    rate: str
    """Samples per second."""
    price: str
    """Per hour."""
    why: str
    """Why it fails, if not for the device's memory; or that it is below the floor."""
    about: tuple[str, ...]
    """The plan, in parts of a sentence."""
    is_this: bool
    """It is that of the plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KindOfDevice:
    """The cells of one offer."""

    offer: Offer
    capacity: str
    """Memory of a device that a plan may use."""
    micro_batches: tuple[int, ...]
    rows: dict[int, tuple[CellWords, ...]]
    """By number of devices; as many in each as there are micro-batches, or fewer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wording:
    """Plan and scale that the words of each cell are chosen by."""

    certificate: Certificate
    scale: ByteScale
    own: tuple[Offer, int, int] | None
    """Offer, devices and micro-batch of the plan."""
    num_steps: int | None
    floor: RateFloor
    """Of the answer."""

    def words(self, cell: GridCell) -> CellWords:
        """Words of one cell."""
        offer = self.certificate.space.offers[cell.offer]
        point, fault = cell.plan, ""
        least = f"needs ≥ {self.scale.up(cell.least_bytes)}"
        peak = least if cell.least_bytes else ""
        if point is not None:
            peak = self.scale.up(point.peak_bytes)
            fault = self.floor.fault(cell.num_gpus, point.samples_per_s)
        costs = () if point is None else self.costs(cell, point, offer)
        why = WHY.get(cell.binding, "") if cell.binding else ""
        return CellWords(
            cell=cell,
            verdict=NOT_SEARCHED if cell.verdict is None else str(cell.verdict),
            peak=peak,
            rate="" if point is None else rate_text(point.samples_per_s),
            price=""
            if cell.price_per_hour is None
            else f"{money(cell.price_per_hour, offer.currency)}/h",
            why=fault or why,
            about=() if point is None else (*plan_words(point), *costs),
            is_this=self.own == (offer, cell.num_gpus, cell.micro_batch),
        )

    def costs(
        self, cell: GridCell, point: FrontierPoint, offer: Offer
    ) -> Iterator[str]:
        """Yield seconds and prices of the plan of a cell."""
        step_s = point.step_time.expected_s
        yield f"step {seconds_text(step_s)}"
        hours = Decimal(step_s / S_PER_HOUR)
        price = cell.price_per_hour
        samples = point.mesh.data * point.micro_batch * point.num_micro_batches
        if price is not None:
            cost = number_text(float(price * hours * PER_MANY / samples), 3)
            yield f"{cost} {offer.currency} for {PER_MANY:,} samples"
        if self.num_steps is not None:
            text = f"{self.num_steps:,} steps {duration_text(self.num_steps * step_s)}"
            if price is not None:
                text += f", {price * hours * self.num_steps:.2f} {offer.currency}"
            yield text


def plan_words(point: FrontierPoint) -> Iterator[str]:
    """Yield what a plan does, in a few words each."""
    pipeline, data, tensor = point.mesh.degrees
    mesh = f"{counted(pipeline, 'stage')} x {counted(data, 'replica')}"
    yield mesh if tensor == 1 else f"{mesh} x tensor degree {tensor}"
    yield f"micro-batch {point.micro_batch} x {point.num_micro_batches}"
    levels = each_of(point.shardings)
    if levels != Sharding.NONE:
        yield f"sharded: {levels}"
    homes = each_of(point.optimizer_homes)
    if homes != OptimizerHome.DEVICE:
        yield f"optimizer on: {homes}"
    if again := sum(point.num_recomputed):
        yield f"{counted(again, 'layer')} recomputed"
    if away := sum(point.num_offloaded):
        yield f"{counted(away, 'layer')} offloaded"


def kinds_of(
    answer: Solution | Infeasible, problem: Problem | None
) -> list[KindOfDevice]:
    """The cells of each offer, that of the plan first; none without a grid.

    Args:
        answer: with or without a grid.
        problem: its question, for what the whole training costs; None: not known.
    """
    if answer.grid is None:
        return []
    offers, limits = answer.certificate.space.offers, answer.certificate.space.limits
    wording = wording_of(answer, problem)
    places = sorted({one.offer for one in answer.grid.cells})
    if wording.own is not None:
        own = offers.index(wording.own[0])
        places.sort(key=lambda place: (place != own, place))
    kinds: list[KindOfDevice] = []
    for place in places:
        cells = [one for one in answer.grid.cells if one.offer == place]
        usable = limits.usable_bytes(offers[place].device_memory_bytes)
        rows: dict[int, tuple[CellWords, ...]] = {}
        for cell in cells:
            before = rows.get(cell.num_gpus, ())
            rows[cell.num_gpus] = (*before, wording.words(cell))
        kinds.append(
            KindOfDevice(
                offer=offers[place],
                capacity=wording.scale.down(usable),
                micro_batches=tuple(sorted({one.micro_batch for one in cells})),
                rows=rows,
            )
        )
    return kinds


def wording_of(answer: Solution | Infeasible, problem: Problem | None) -> Wording:
    """Wording for all cells of an answer."""
    certificate, own = answer.certificate, None
    memory = [offer.device_memory_bytes for offer in certificate.space.offers]
    if isinstance(answer, Solution):
        plan = answer.plan
        own = (plan.offers[0], plan.num_gpus, plan.micro_batch)
    return Wording(
        certificate=certificate,
        scale=ByteScale.up_to(max(memory)),
        own=own,
        num_steps=None if problem is None else problem.num_steps,
        floor=RateFloor.of(answer, problem),
    )


def kind_less_important(kind: KindOfDevice) -> list[str]:
    """Columns that a narrow terminal leaves out, those of large micro-batches first."""
    own = [words for row in kind.rows.values() for words in row if words.is_this]
    kept = {words.cell.micro_batch for words in own}
    return [f"MICRO-BATCH {b}" for b in reversed(kind.micro_batches) if b not in kept]


def kind_table(kind: KindOfDevice) -> Table:
    """Devices downwards, micro-batches to the right."""
    noun = f"{device_noun([kind.offer])}s".upper()
    rows: list[dict[str, str]] = []
    for count, cells in kind.rows.items():
        found = {words.cell.micro_batch: cell_text(words) for words in cells}
        rows.append(
            {noun: str(count)}
            | {f"MICRO-BATCH {b}": found.get(b, "-") for b in kind.micro_batches}
        )
    return table_of(rows, left=[f"MICRO-BATCH {b}" for b in kind.micro_batches])


def cell_text(words: CellWords) -> str:
    """Text of a cell in one line of ASCII."""
    rate = f"{words.rate}/s" if words.rate else ""
    parts = [words.verdict, words.peak.replace("needs ≥", ">="), rate]
    if words.cell.binding is not None:
        parts.append(SHORT.get(words.cell.binding, ""))
    elif words.why:
        parts.append("slow")
    return " ".join(filter(None, parts)) + (" @" if words.is_this else "")


def grid_lines(grid: Grid) -> Iterator[str]:
    """Yield sentences on what was left out, and how long it took."""
    every, late = len(grid.cells), grid.num_unsearched
    yield f"{every - late} of {every} cells searched in {seconds_text(grid.search_s)}"
    if late:
        limit = seconds_text(grid.limit_s)
        yield f"{late} not searched: {limit} were allowed; --grid-seconds allows more"
    if grid.num_offers_left_out:
        machines = counted(grid.num_offers_left_out, "other kind")
        yield f"{machines} of machines left out"


def kind_title(kind: KindOfDevice) -> str:
    """Name of the machines of a table, and the memory of each device."""
    return f"{offer_text(kind.offer)}, {kind.capacity} a device"
