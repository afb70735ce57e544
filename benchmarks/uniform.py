"""The peak of the fullest rank: exact cuts against uniform ones.

For each family and way of planning, on 8 stages: the least peak of a plan whose step
takes at most 1.05 times, 1.25 times or any time of that of uniform cuts alone. Plans of
small models are also trained by real processes, and their peaks measured.

The bar is the claim of CAPTURE (HiPC 2023): 43.9 % less memory. Every row is written to
docs/benchmarks/uniform.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.progress import track

from benchmarks.frame import Goal, Measurement, run
from benchmarks.support.families import LARGE, SMALL
from benchmarks.support.family_run import peaks_of
from benchmarks.support.pages import markdown, prose, write_page
from benchmarks.support.ways import CUTS_ALONE, WAYS, Way, pipeline, tensor_bytes
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.units import at_least

CLAIM = 43.9
"""Per cent."""
NUM_STAGES, NUM_MICRO_BATCHES = 8, 32
LIMITS = (1.05, 1.25, None)
"""Times the step of uniform cuts alone; None: any."""
MOST_FORMULA_ERROR = 3
"""Per cent, the bar of bench-truth."""
HEAD = (
    *("model", "choices", "step", "uniform alone", "exact", "less"),
    *("less than uniform, all choices", "step / uniform's", "open", "43.9 % reached"),
)
RUN_HEAD = ("uniform, measured", "exact, measured", "less, measured")


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A plan and what is known of it."""

    plan: HybridPlan
    step_s: float
    open_part: float
    """How much lower, for all that is proven, the peak of a plan as fast may be."""

    @property
    def peak_bytes(self) -> int:
        """Expected, of tensors, on the fullest rank."""
        return tensor_bytes(self.plan)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Exact cuts against uniform ones, for one family, way and time of a step."""

    family: str
    way: str
    limit: float | None
    alone: Planned
    """Uniform cuts alone."""
    uniform: Planned
    """Uniform cuts with all choices, as fast."""
    exact: Planned
    alone_bytes: int = 0
    """Measured; 0 where nothing was trained."""
    exact_bytes: int = 0

    @property
    def less_percent(self) -> float:
        """How much lower the peak is than that of uniform cuts alone."""
        return less(self.exact.peak_bytes, self.alone.peak_bytes)

    def cells(self) -> tuple[str, ...]:
        """The row of the page."""
        is_there = self.less_percent >= CLAIM
        foretold = (
            self.family,
            self.way,
            limit_text(self.limit),
            at_least(self.alone.peak_bytes),
            at_least(self.exact.peak_bytes),
            f"{self.less_percent:.1f} %",
            f"{less(self.exact.peak_bytes, self.uniform.peak_bytes):.1f} %",
            f"{self.exact.step_s / self.alone.step_s:.2f}",
            f"{100 * self.exact.open_part:.1f} %",
            "yes" if is_there else "**no**",
        )
        if not self.alone_bytes:
            return foretold
        return (
            *foretold,
            at_least(self.alone_bytes),
            at_least(self.exact_bytes),
            f"{less(self.exact_bytes, self.alone_bytes):.1f} %",
        )


def less(value: float, base: float) -> float:
    """How much lower a value is, per cent."""
    return 100 * (1 - value / base)


def limit_text(limit: float | None) -> str:
    """How long a step may take, in a cell."""
    return "any" if limit is None else f"<= {limit:g} x"


def planned(
    family: str, way: Way, step_s: float | None, *, is_uniform: bool
) -> Planned:
    """Plan of the least memory within a step's time.

    Raises:
        AssertionError: no plan is so fast.
    """
    depth = (SMALL | LARGE)[family].depth
    plans = pipeline(
        family, depth, NUM_STAGES, NUM_MICRO_BATCHES, way, is_uniform=is_uniform
    )
    choice = plans.least_memory(step_s)
    if choice is None:
        raise AssertionError(f"{family}, {way.name}: no plan within {step_s} s")
    return Planned(
        plan=plans.plan(choice.found),
        step_s=choice.found.step_s,
        open_part=choice.memory_gap,
    )


def rows_of(family: str) -> Iterator[Row]:
    """Rows of a family, predicted."""
    alone = planned(family, CUTS_ALONE, None, is_uniform=True)
    for limit in LIMITS:
        step_s = limit and limit * alone.step_s
        uniform = planned(family, WAYS[-1], step_s, is_uniform=True)
        for way in WAYS:
            exact = planned(family, way, step_s, is_uniform=False)
            yield Row(
                family=family,
                way=way.name,
                limit=limit,
                alone=alone,
                uniform=uniform,
                exact=exact,
            )


def measured_peaks(rows: Sequence[Row]) -> dict[HybridPlan, list[int]]:
    """Peaks of all ranks of every plan that the rows compare, trained once each."""
    family_of = {
        planned.plan: row.family for row in rows for planned in (row.alone, row.exact)
    }
    return {
        plan: peaks_of(family, SMALL[family].depth, plan)
        for plan, family in track(list(family_of.items()), "trained")
    }


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    predicted = {
        family: list(rows_of(family)) for family in track((*SMALL, *LARGE), "plans")
    }
    small = [row for family in SMALL for row in predicted[family]]
    large = [row for family in LARGE for row in predicted[family]]
    peaks = measured_peaks(small)
    trained = [
        replace(
            row,
            alone_bytes=max(peaks[row.alone.plan]),
            exact_bytes=max(peaks[row.exact.plan]),
        )
        for row in small
    ]
    write_page(
        "uniform",
        prose(
            "uniform", SMALL | LARGE, stages=NUM_STAGES, micro_batches=NUM_MICRO_BATCHES
        ),
        [
            (
                "Small models, predicted and measured",
                markdown((*HEAD, *RUN_HEAD), [row.cells() for row in trained]),
            ),
            (
                "Sizes of published models, predicted alone",
                markdown(HEAD, [row.cells() for row in large]),
            ),
        ],
    )
    for what, rows in (("small", trained), ("published sizes", large)):
        for way in WAYS:
            for limit in LIMITS:
                yield reductions(what, rows, way, limit)
    yield Measurement(
        name="fullest rank, predicted against measured, largest error",
        runs=(max(error_percent(plan, found) for plan, found in peaks.items()),),
        unit="%",
        goal=Goal(at_most=MOST_FORMULA_ERROR),
    )


def reductions(
    what: str, rows: Sequence[Row], way: Way, limit: float | None
) -> Measurement:
    """Reductions of all families for one way and time of a step, with the bar."""
    return Measurement(
        name=f"peak below uniform cuts, {way.name}, step {limit_text(limit)}, {what}",
        runs=tuple(
            row.less_percent
            for row in rows
            if row.way == way.name and row.limit == limit
        ),
        unit="%",
        goal=Goal(at_least=CLAIM),
    )


def error_percent(plan: HybridPlan, measured_bytes: Sequence[int]) -> float:
    """Error of the predicted peak of the fullest rank, per cent of the measured one."""
    return abs(less(tensor_bytes(plan), max(measured_bytes)))


if __name__ == "__main__":
    sys.exit(run("uniform", measure))
