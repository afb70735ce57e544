"""Throughput under a memory cap: ours against GPipe and 1F1B without recompute.

For each family and cap, on 8 devices: the plan of the most samples per second that the
search finds, and both baselines with the largest micro-batch that fits and with their
fastest one. Plans of two small models are also trained by real processes under the cap.
For BERT in halves of layers: how much of each stage recomputes, beside the published
plans.

The bars are the lower ends of vPipe's claims (TPDS 2022): 24.8 % over GPipe, 61.4 %
over PipeDream. Every row is written to docs/benchmarks/vpipe.md.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.progress import track

from benchmarks.frame import Goal, Measurement, run
from benchmarks.support.baseline_plans import (
    ANY_MESH,
    BATCH,
    NUM_DEVICES,
    OFFLOADING,
    ON_DEVICE,
    RECOMPUTE,
    SMALL_BATCH,
    Judged,
    best,
    cap_bytes_of,
    largest,
    of_gpipe,
    one_f_one_b,
    ours,
)
from benchmarks.support.families import FAMILIES
from benchmarks.support.gpipe import Form
from benchmarks.support.pages import markdown, prose, write_page
from benchmarks.support.plan_shapes import HEAD as SHAPE_HEAD
from benchmarks.support.plan_shapes import PUBLISHED, PlanShape, shape_of
from benchmarks.support.timed_run import NUM_STEPS, Run, timed_run
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.search.found import Found
from plimsoll_planner.units import at_least

OVER_GPIPE, OVER_PIPEDREAM = (24.8, 291.3), (61.4, 463.4)
"""Per cent, from the least to the most: vPipe's abstract."""
BASELINES = (
    ("GPipe, largest b", OVER_GPIPE[0]),
    ("GPipe, best b", OVER_GPIPE[0]),
    ("1F1B, largest b", OVER_PIPEDREAM[0]),
    ("1F1B, best b", OVER_PIPEDREAM[0]),
)
"""Names and bars."""
BERT = "BERT, 48 layers"
WALKED = (BERT, "ResNet-101", "U-Net, 64 channels", "Swin-B")
TRAINED = ("CNN", "Swin")
CAPS = {"2/3": 2 / 3, "1": 1.0, "2": 2.0}
"""Parts of what 1F1B without recompute needs at b = 1."""
SHAPE_CAPS = (0.6, 2 / 3, 0.8)
"""The same, for the shape: with as much as 1F1B needs, next to nothing recomputes."""
NUM_ROUNDS = 2
"""Of the runs of all plans, in turn."""
DOES_NOT_FIT = "does not fit"
HEAD = (
    *("model", "cap", *(name for name, _ in BASELINES)),
    *("ours, no offload", "ours", "open", "ours, any mesh"),
)
GAIN_HEAD = (
    *("model", "cap", *(f"over {name}" for name, _ in BASELINES)),
    *("any mesh, over GPipe, best b", "24.8 % over GPipe, largest b"),
)
RUN_HEAD = (
    *("model", "cap", "plan", "b", "predicted, at most", "measured"),
    *("within cap and prediction", "samples/s here, all on the same cores"),
    "samples/s walked, 8 devices",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Plans of one family within one cap; None where none fits."""

    family: str
    part: str
    """Of what 1F1B needs, as the page has it."""
    cap_bytes: int
    gpipe: Judged | None
    """Of the largest b."""
    best_gpipe: Judged | None
    one_f_one_b: Judged | None
    """Of the largest b."""
    best_one_f_one_b: Judged | None
    on_device: Judged | None
    ours: Judged | None
    any_mesh: Judged | None

    @property
    def names(self) -> tuple[str, str]:
        """Family and cap, in cells."""
        return self.family, f"{at_least(self.cap_bytes)} ({self.part} x)"

    @property
    def baselines(self) -> tuple[Judged | None, ...]:
        """In the order of `BASELINES`."""
        return self.gpipe, self.best_gpipe, self.one_f_one_b, self.best_one_f_one_b

    @property
    def gains(self) -> tuple[float | None, ...]:
        """Gains of ours over each baseline, per cent; None where one does not fit."""
        return tuple(gain_percent(self.ours, other) for other in self.baselines)

    def cells(self) -> tuple[str, ...]:
        """The row of the first table."""
        return (
            *self.names,
            *map(plan_text, (*self.baselines, self.on_device, self.ours)),
            "-" if self.ours is None else f"{100 * self.ours.open_part:.1f} %",
            plan_text(self.any_mesh, has_mesh=True),
        )

    def gain_cells(self) -> tuple[str, ...]:
        """The row of the second table."""
        over_gpipe, *_ = self.gains
        is_reached = over_gpipe is not None and over_gpipe >= OVER_GPIPE[0]
        gains = *self.gains, gain_percent(self.any_mesh, self.best_gpipe)
        verdict = "-" if over_gpipe is None else "yes" if is_reached else "**no**"
        return (*self.names, *map(gain_text, gains), verdict)


def plan_text(judged: Judged | None, *, has_mesh: bool = False) -> str:
    """Throughput and b of a plan, in a cell."""
    if judged is None:
        return DOES_NOT_FIT
    mesh = judged.found.candidate.mesh
    degrees = f", {mesh.pipeline} x {mesh.data}" if has_mesh else ""
    return f"{judged.samples_per_s:.4g}/s, b = {judged.micro_batch}{degrees}"


def gain_percent(mine: Judged | None, other: Judged | None) -> float | None:
    """How much faster a plan is than another one, per cent; None if one is missing."""
    if mine is None or other is None:
        return None
    return 100 * (mine.samples_per_s / other.samples_per_s - 1)


def gain_text(percent: float | None) -> str:
    """A gain, in a cell."""
    return "-" if percent is None else f"{percent:+.1f} %"


def row_of(family: str, part: str) -> Row:
    """Plans of a family within a cap."""
    cap_bytes = cap_bytes_of(family, CAPS[part])
    gpipe, plain = of_gpipe(family), one_f_one_b(family)
    return Row(
        family=family,
        part=part,
        cap_bytes=cap_bytes,
        gpipe=largest(gpipe, cap_bytes),
        best_gpipe=best(gpipe, cap_bytes),
        one_f_one_b=largest(plain, cap_bytes),
        best_one_f_one_b=best(plain, cap_bytes),
        on_device=ours(family, cap_bytes, ON_DEVICE),
        ours=ours(family, cap_bytes, OFFLOADING),
        any_mesh=ours(family, cap_bytes, ANY_MESH),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """A plan that fits, and its runs under the cap."""

    row: Row
    name: str
    judged: Judged
    runs: tuple[Run, ...] = ()

    def run(self) -> Run:
        """Train it once."""
        schedule = Schedule.GPIPE if self.name == "GPipe" else Schedule.ONE_F_ONE_B
        return timed_run(
            self.row.family, self.judged.plan, self.row.cap_bytes, schedule
        )

    @property
    def measured_bytes(self) -> int:
        """Peak of the fullest rank; 0 if one ran out of memory."""
        return max((max(run.peaks_bytes, default=0) for run in self.runs), default=0)

    @property
    def is_within(self) -> bool:
        """Whether all ranks ran within the cap, and none held more than predicted."""
        ran = all(run.peaks_bytes for run in self.runs)
        return ran and self.measured_bytes <= self.judged.needed_bytes

    @property
    def error_percent(self) -> float:
        """How much more was predicted for the fullest rank than it held."""
        return 100 * (self.judged.needed_bytes / self.measured_bytes - 1)

    def cells(self) -> tuple[str, ...]:
        """The row of the page."""
        batch = self.judged.search.problem.global_batch_size
        rates = [batch / step_s for run in self.runs for step_s in run.steps_s]
        return (
            *self.row.names,
            self.name,
            str(self.judged.micro_batch),
            at_least(self.judged.needed_bytes),
            at_least(self.measured_bytes) if rates else "out of memory",
            "yes" if self.is_within else "**no**",
            rates_text(rates),
            f"{self.judged.samples_per_s:.4g}",
        )


def rates_text(rates: Sequence[float]) -> str:
    """Median with its spread, in a cell."""
    if not rates:
        return "-"
    middle = statistics.median(rates)
    return f"{middle:.3g} ({min(rates):.3g} to {max(rates):.3g})"


def to_train(row: Row) -> Iterator[Trained]:
    """Yield the plans of a row that are trained; of GPipe one that fits in torch."""
    plans = {
        "GPipe": largest(of_gpipe(row.family, Form.IN_TORCH), row.cap_bytes),
        "1F1B": row.one_f_one_b,
        "ours": row.ours,
    }
    for name, judged in plans.items():
        if judged is not None:
            yield Trained(row=row, name=name, judged=judged)


def trained(rows: Sequence[Row]) -> list[Trained]:
    """All plans of small models with their runs, round after round.

    A plan that fits several caps is trained under the least of them.
    """
    smallest: dict[tuple[str, str, Found], Trained] = {}
    for plan in (plan for row in rows for plan in to_train(row)):
        key = plan.row.family, plan.name, plan.judged.found
        smallest.setdefault(key, plan)
    plans = list(smallest.values())
    rounds = [
        [plan.run() for plan in track(plans, f"trained, round {at + 1}")]
        for at in range(NUM_ROUNDS)
    ]
    return [
        Trained(row=plan.row, name=plan.name, judged=plan.judged, runs=runs)
        for plan, runs in zip(plans, zip(*rounds, strict=True), strict=True)
    ]


def our_shapes() -> Iterator[PlanShape]:
    """Yield shapes of our plans for BERT in halves, of caps that make it recompute."""
    for part in track(SHAPE_CAPS, "shapes"):
        cap_bytes = cap_bytes_of(BERT, part)
        judged = ours(BERT, cap_bytes, RECOMPUTE)
        if judged is not None:
            name = f"ours, BERT, 8 stages, 98 blocks, cap {at_least(cap_bytes)}"
            yield shape_of(name, judged.plan)


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    rows = [row_of(family, part) for family in track(WALKED, "plans") for part in CAPS]
    small = [row_of(family, part) for family in TRAINED for part in CAPS]
    shapes = list(our_shapes())
    runs = trained(small)
    write_page("vpipe", text_of_page(), tables(rows, small, shapes, runs))
    for family in (*WALKED, *TRAINED):
        yield from gains([row for row in (*rows, *small) if row.family == family])
    yield from of_shapes(shapes)
    yield from of_runs(runs)


def text_of_page() -> str:
    """The page's text before its tables."""
    families = {family: FAMILIES[family] for family in (*WALKED, *TRAINED)}
    return prose(
        "vpipe",
        families,
        states_b=False,
        devices=NUM_DEVICES,
        rounds=NUM_ROUNDS,
        steps=NUM_STEPS,
        batch=BATCH,
        small_batch=SMALL_BATCH,
    )


def tables(
    rows: Sequence[Row],
    small: Sequence[Row],
    shapes: Sequence[PlanShape],
    runs: Sequence[Trained],
) -> list[tuple[str, str]]:
    """The tables of the page, with their headings."""
    gained = markdown(GAIN_HEAD, [row.gain_cells() for row in rows])
    shape_rows = [shape.cells() for shape in (*PUBLISHED, *shapes)]
    return [
        ("Gains, walked", f"{gained}\n\n{markdown(*published(rows))}"),
        ("Throughput, walked", markdown(HEAD, [row.cells() for row in rows])),
        ("Part of each stage that recomputes", markdown(SHAPE_HEAD, shape_rows)),
        (
            "Small models, gains, walked",
            markdown(GAIN_HEAD, [row.gain_cells() for row in small]),
        ),
        (
            "Small models, throughput, walked",
            markdown(HEAD, [row.cells() for row in small]),
        ),
        (
            "Small models, trained by 8 processes",
            markdown(RUN_HEAD, [plan.cells() for plan in runs]),
        ),
    ]


def published(
    rows: Sequence[Row],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Table of published gains beside ours, from the least to the most."""
    head = ("baseline", "vPipe's abstract", "ours, largest b", "ours, best b")

    def span(baseline: int) -> str:
        found = known(rows, baseline)
        return f"{min(found):+.1f} to {max(found):+.1f} %" if found else "-"

    return head, [
        ("GPipe", f"{OVER_GPIPE[0]:+} to {OVER_GPIPE[1]:+} %", span(0), span(1)),
        (
            "PipeDream; ours: 1F1B with a flush, nothing recomputed",
            f"{OVER_PIPEDREAM[0]:+} to {OVER_PIPEDREAM[1]:+} %",
            *(span(2), span(3)),
        ),
    ]


def known(rows: Sequence[Row], baseline: int) -> tuple[float, ...]:
    """Gains over a baseline, by its place, under the caps that both fit."""
    found = (row.gains[baseline] for row in rows)
    return tuple(percent for percent in found if percent is not None)


def gains(rows: Sequence[Row]) -> Iterator[Measurement]:
    """Yield gains of a family over all caps, with the bars."""
    for place, (baseline, least) in enumerate(BASELINES):
        if found := known(rows, place):
            yield Measurement(
                name=f"{rows[0].family}, samples/s over {baseline}, caps where it fits",
                runs=found,
                unit="%",
                goal=Goal(at_least=least),
            )


def of_shapes(shapes: Sequence[PlanShape]) -> Iterator[Measurement]:
    """Yield the shape of our plans; in all published ones recompute never rises."""
    yield Measurement(
        name="BERT in halves, pairs of stages in which recompute falls or stays",
        runs=tuple(shape.falling_percent for shape in shapes),
        unit="%",
        goal=Goal(at_least=min(shape.falling_percent for shape in PUBLISHED)),
    )
    yield Measurement(
        name="the same, in which blocks rise or stay, the last stage aside",
        runs=tuple(shape.rising_percent for shape in shapes),
        unit="%",
        goal=Goal(at_least=min(shape.rising_percent for shape in PUBLISHED)),
    )


def of_runs(runs: Sequence[Trained]) -> Iterator[Measurement]:
    """Yield what the processes show: peaks, and whether they were within the cap."""
    yield Measurement(
        name=f"of {len(runs)} plans, run within the cap and the prediction",
        runs=(float(sum(plan.is_within for plan in runs)),),
        unit="plans",
        goal=Goal(at_least=len(runs)),
    )
    done = [plan for plan in runs if plan.measured_bytes]
    yield Measurement(
        name="fullest rank, predicted above measured",
        runs=tuple(plan.error_percent for plan in done),
        unit="%",
    )


if __name__ == "__main__":
    sys.exit(run("vpipe", measure))
