"""The largest model of a family that fits P devices: exact cuts against uniform ones.

For each family, P and way of planning: the deepest model whose exact plan fits a cap,
by bisection, against the deepest whose uniform cuts do, of all depths up to it. Both
have the same micro-batch, micro-batches and schedule, and each its plan of the least
memory at any speed. The cap is what uniform cuts alone need for the depth that the
family is published with, or compared at, rounded up.

Small models are then trained by real processes under the cap: both plans at their
largest depth, and uniform cuts one block deeper, which must die of memory.

The bar is the claim of mCAP (Euro-Par 2022): 1.55 times the parameters of uniform cuts.
Every row is written to docs/benchmarks/larger.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from rich.progress import track

from benchmarks.frame import Goal, Measurement, run
from benchmarks.support.capped_run import Run, require_no_other_death, run_capped
from benchmarks.support.families import LARGE, SMALL, num_parameters
from benchmarks.support.family_run import train_rank
from benchmarks.support.pages import markdown, prose, write_page
from benchmarks.support.ways import CUTS_ALONE, WAYS, Pipeline, Way, pipeline
from plimsoll_planner.units import at_least

CLAIM = 1.55
NUM_MICRO_BATCHES = 16
NUM_STAGES = (4, 8)
MOST_BLOCKS = 240
"""Deepest models tried; the search takes longer where there are more than 256 layers.
"""
MIB, GIB = 2**20, 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """Which models of a family are asked for, and on what."""

    family: str
    num_stages: int
    way: Way = CUTS_ALONE
    is_uniform: bool = True

    def pipeline(self, depth: int) -> Pipeline:
        """Plans of a depth."""
        return pipeline(
            self.family,
            depth,
            self.num_stages,
            NUM_MICRO_BATCHES,
            self.way,
            is_uniform=self.is_uniform,
        )

    def fits(self, depth: int) -> bool:
        """Whether the upper bound of some plan of a depth is within the cap."""
        cap_bytes = cap_of(self.family, self.num_stages)
        return self.pipeline(depth).least_device_bytes() <= cap_bytes

    def run(self, depth: int) -> Run:
        """Train the least-memory plan of a depth under the cap."""
        plan = self.pipeline(depth).least_memory_plan()
        caps = [cap_of(self.family, self.num_stages)] * self.num_stages
        return run_capped(train_rank, caps, self.family, depth, plan)


@cache
def cap_of(family: str, num_stages: int) -> int:
    """Memory of a device: what uniform cuts need for the family's depth, rounded up."""
    plans = Question(family=family, num_stages=num_stages).pipeline(depth_of(family))
    unit = MIB if family in SMALL else GIB
    return -(-plans.least_device_bytes() // unit) * unit


def depth_of(family: str) -> int:
    """Depth that fits the cap with uniform cuts, and so with any plan."""
    return (SMALL | LARGE)[family].depth


def deepest(fits: Callable[[int], bool], least: int, most: int) -> int:
    """Deepest that fits, by bisection; the least does, and so does all below it."""
    low, high = least, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def deepest_of_all(fits: Callable[[int], bool], least: int, most: int) -> int:
    """Deepest that fits of all from `most` down: a deeper one may fit again.

    Uniform cuts shift with the depth, so that their peak does not always rise.
    """
    return next((at for at in range(most, least, -1) if fits(at)), least)


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The largest model of one question."""

    depth: int
    parameters: int

    @property
    def is_open(self) -> bool:
        """Deeper ones may fit, and were not tried."""
        return self.depth == MOST_BLOCKS

    def __str__(self) -> str:
        more = " or more" if self.is_open else ""
        return f"{self.parameters / 1e6:.4g} M, {self.depth} blocks{more}"


@cache
def exact_size(family: str, num_stages: int, way: int) -> Size:
    """Largest model with exact cuts."""
    asked = Question(
        family=family, num_stages=num_stages, way=WAYS[way], is_uniform=False
    )
    found = deepest(asked.fits, depth_of(family), MOST_BLOCKS)
    return Size(depth=found, parameters=num_parameters(family, found))


@cache
def uniform_size(family: str, num_stages: int, way: int) -> Size:
    """Largest model with uniform cuts, which is none that exact cuts do not fit."""
    asked = Question(family=family, num_stages=num_stages, way=WAYS[way])
    most = exact_size(family, num_stages, way).depth
    found = deepest_of_all(asked.fits, depth_of(family), most)
    return Size(depth=found, parameters=num_parameters(family, found))


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Largest models of one family, P and way, and how they ran."""

    family: str
    num_stages: int
    way: str
    cap_bytes: int
    alone: Size
    """Of uniform cuts alone."""
    same: Size
    """Of uniform cuts with the same choices."""
    recomputed: Size
    """Of uniform cuts with all choices."""
    exact: Size
    runs: tuple[Run, ...] = ()
    """Exact cuts; uniform ones with the same choices; those one block deeper."""

    @property
    def ratio(self) -> float:
        """Parameters against those of uniform cuts alone."""
        return self.exact.parameters / self.alone.parameters

    @property
    def is_as_shown(self) -> bool:
        """Both largest models ran, and uniform cuts one block deeper did not."""
        exact, uniform, deeper = self.runs
        return exact.is_done and uniform.is_done and deeper.is_full

    def cells(self) -> tuple[str, ...]:
        """The row of the page."""
        endings = ["ran" if run.is_done else "out of memory" for run in self.runs]
        return (
            self.family,
            str(self.num_stages),
            at_least(self.cap_bytes),
            self.way,
            *map(str, (self.alone, self.same, self.exact)),
            ratio_text(self.exact, self.alone),
            ratio_text(self.exact, self.recomputed),
            "yes" if self.ratio >= CLAIM else "**no**",
            *endings,
        )


HEAD = (
    *("model", "P", "cap", "choices", "uniform cuts alone"),
    *("uniform, same choices", "exact", "exact / uniform alone"),
    *("exact / uniform, all choices", "1.55 reached"),
)
RUN_HEAD = ("exact ran", "uniform, same choices", "one block deeper")


def ratio_text(exact: Size, other: Size) -> str:
    """Ratio of parameters, a lower bound where deeper models were not tried."""
    if other.is_open:
        return "-"
    bound = ">= " if exact.is_open else ""
    return f"{bound}{exact.parameters / other.parameters:.2f}"


def row_of(family: str, num_stages: int, way: int) -> Row:
    """Largest models, by the formula."""
    return Row(
        family=family,
        num_stages=num_stages,
        way=WAYS[way].name,
        cap_bytes=cap_of(family, num_stages),
        alone=uniform_size(family, num_stages, 0),
        same=uniform_size(family, num_stages, way),
        recomputed=uniform_size(family, num_stages, len(WAYS) - 1),
        exact=exact_size(family, num_stages, way),
    )


def with_runs(row: Row, way: Way) -> Row:
    """A row, trained under its cap."""
    uniform = Question(family=row.family, num_stages=row.num_stages, way=way)
    exact = replace(uniform, is_uniform=False)
    runs = (
        exact.run(row.exact.depth),
        uniform.run(row.same.depth),
        uniform.run(row.same.depth + 1),
    )
    require_no_other_death(runs)
    return replace(row, runs=runs)


def rows_of(families: Sequence[str]) -> list[tuple[Row, Way]]:
    """Rows of families, each with its way."""
    every = [
        (family, num_stages, way)
        for family in families
        for num_stages in NUM_STAGES
        for way in range(len(WAYS))
    ]
    return [(row_of(*one), WAYS[one[2]]) for one in track(every, "largest models")]


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    small, large = rows_of(list(SMALL)), rows_of(list(LARGE))
    ran = [with_runs(row, way) for row, way in track(small, "trained under the cap")]
    predicted = [row for row, _ in large]
    text = prose(
        "larger", SMALL | LARGE, micro_batches=NUM_MICRO_BATCHES, most=MOST_BLOCKS
    )
    write_page("larger", text, tables(ran, predicted))
    for what, rows in (("trained", ran), ("predicted alone", predicted)):
        for num_stages in NUM_STAGES:
            for way in WAYS:
                yield ratios(what, rows, num_stages, way)
    yield Measurement(
        name=f"of {len(ran)} rows, both largest ran and one block deeper died",
        runs=(float(sum(row.is_as_shown for row in ran)),),
        unit="rows",
        goal=Goal(at_least=len(ran)),
    )


def ratios(what: str, rows: Sequence[Row], num_stages: int, way: Way) -> Measurement:
    """Ratios of all families for one P and way, with the bar."""
    return Measurement(
        name=f"parameters over uniform cuts, P = {num_stages}, {way.name}, {what}",
        runs=tuple(
            row.ratio
            for row in rows
            if row.num_stages == num_stages and row.way == way.name
        ),
        unit="x",
        goal=Goal(at_least=CLAIM),
    )


def tables(ran: Sequence[Row], predicted: Sequence[Row]) -> list[tuple[str, str]]:
    """The tables of the page, with their headings."""
    return [
        (
            "Small models, trained",
            markdown((*HEAD, *RUN_HEAD), [row.cells() for row in ran]),
        ),
        (
            "Sizes of published models, predicted alone",
            markdown(HEAD, [row.cells() for row in predicted]),
        ),
    ]


if __name__ == "__main__":
    sys.exit(run("larger", measure))
