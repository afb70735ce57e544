"""The memory of every rank against the load line, as places along a bar.

In: a record. Out: a `MemoryView`: texts and percentages of the bar's width. Called by
`page`. A bar shows the expected peak kind by kind, then the room up to its upper bound,
and a mark where the measured peak lies.

    |parameters|gradients|optimizer|saved|working| ~~~bound|        | load line
                                              ^ measured
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

from plimsoll_cli.output.answer_tables import span
from plimsoll_cli.output.scales import ByteScale, percent_text
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_operator.rules.summary import observed_peak_bytes
from plimsoll_planner.memory.rank_peak import MemoryKind
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan, PhasePeak, Stage
from plimsoll_planner.search.breakdown import breakdown
from plimsoll_planner.text.counts import counted

MOST_BARS = 32
"""With more ranks there is a bar for each stage: the ranks of a stage are alike."""
ROOM = 1.03
"""Of the axis beyond what it must show."""
FAR = 4
"""A load line so many times beyond the fullest peak is not drawn to scale."""
BAR_EM, PHONE_BAR_EM, LETTER_EM, MARGIN_EM = 52, 28, 0.52, 1
"""Widths of a bar on a desk and on a phone, of a letter and of what surrounds a name,
in letter heights of the names."""
LEAST_WIDTH = 0.15
"""Percent of a bar that is a line at least."""
UNKNOWN_KIND = "expected"
"""Kind of the whole peak if there is no problem to split it by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Bytes of one kind, as a part of a bar."""

    kind: str
    left: float
    """Percent."""
    width: float
    """Percent."""
    text: str

    @property
    def has_label(self) -> bool:
        """Whether it is wide enough for its name."""
        return self.width / 100 * BAR_EM >= self.name_em

    @property
    def is_wide(self) -> bool:
        """Whether it is wide enough on a phone as well."""
        return self.width / 100 * PHONE_BAR_EM >= self.name_em

    @property
    def name_em(self) -> float:
        """Width of its name."""
        return len(self.kind) * LETTER_EM + MARGIN_EM


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryBar:
    """One rank, or one stage of many."""

    name: str
    holds: str
    """Stage and layers."""
    parts: tuple[Part, ...]
    expected: float
    """Percent, as all places."""
    bound: float
    measured: float | None
    cells: dict[str, str]
    """Of its row in the table."""
    spoken: str
    """For those who do not see the bar."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryView:
    """All bars on one axis."""

    bars: tuple[MemoryBar, ...]
    kinds: tuple[str, ...]
    """That occur, in order."""
    colours: tuple[str, ...]
    """Those of them that can be seen."""
    ticks: tuple[tuple[float, str], ...]
    load_line: float | None
    """Percent; None where it is too far to draw to scale."""
    load_text: str
    far_text: str
    """Says how far, where it is not drawn to scale."""
    by_stage: bool
    noun: str
    """Of what there is a bar."""
    errors: tuple[float, ...]
    """Of every rank that was measured: measured over expected, less 1."""
    fullest_bound: float
    """Largest upper bound, as a part of the load line."""
    fullest_measured: float | None
    measured_in: str
    """Which attempt, where there are several."""

    @property
    def take(self) -> str:
        """The message of the bars, in a sentence."""
        words = f"No rank needs more than {self.fullest_bound:.1%} of its load line"
        if self.fullest_bound > 1:
            words = f"A rank may need {self.fullest_bound:.1%} of its load line"
        if not self.errors:
            return f"{words}; nothing was measured yet."
        worst = percent_text(max(map(abs, self.errors)))
        return f"{words}; the worst prediction was off by {worst}{self.measured_in}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """From bytes to places."""

    end_bytes: float
    scale: ByteScale

    def percent(self, num_bytes: int) -> float:
        """A place along the bar."""
        return round(100 * num_bytes / self.end_bytes, 2)


def memory_view(record: RunRecord, plan: HybridPlan) -> MemoryView | None:
    """The bars of a plan; None where nobody predicted its peaks."""
    peaks = [peak for stage in plan.stages if (peak := stage.peak()) is not None]
    if len(peaks) < len(plan.stages):
        return None
    measured = trained(record, plan)
    capacity_bytes = load_line_bytes(record, plan)
    bounds = [peak.device.upper_bytes for peak in peaks]
    found = {rank: observed_peak_bytes(one) for rank, one in measured.items()}
    tops = [*bounds, *found.values()]
    is_far = capacity_bytes > FAR * max(tops)
    most_bytes = max(tops) if is_far else max(*tops, capacity_bytes)
    axis = Axis(end_bytes=most_bytes * ROOM, scale=ByteScale.up_to(most_bytes))
    by_stage = plan.num_gpus > MOST_BARS
    drawn: list[MemoryBar] = []
    for place, (stage, peak) in enumerate(zip(plan.stages, peaks, strict=True)):
        parts = parts_of(record, plan, stage, peak, axis)
        bar = partial(memory_bar, parts, peak, axis)
        name = f"{stage_noun(plan)} {place}"
        layers = "" if plan.placement is not None else layers_text(stage)
        drawn += stage_bars(name, layers, stage, bar, measured, by_stage=by_stage)
    used = {part.kind for bar in drawn for part in bar.parts}
    seen = {p.kind for bar in drawn for p in bar.parts if p.width >= LEAST_WIDTH}
    return MemoryView(
        bars=tuple(drawn),
        kinds=tuple(k for k in (*MemoryKind, UNKNOWN_KIND) if k in used),
        colours=tuple(k for k in (*MemoryKind, UNKNOWN_KIND) if k in seen),
        ticks=tuple(
            (axis.percent(place), text)
            for place, text in axis.scale.ticks(int(axis.end_bytes))
        ),
        load_line=None if is_far else axis.percent(capacity_bytes),
        load_text=ByteScale.up_to(capacity_bytes).down(capacity_bytes),
        far_text=f"{capacity_bytes / max(tops):.0f} times as far" if is_far else "",
        by_stage=by_stage,
        noun=stage_noun(plan) if by_stage else "rank",
        errors=tuple(
            error_of(found[rank], peak)
            for stage, peak in zip(plan.stages, peaks, strict=True)
            for rank in stage.ranks
            if rank in found
        ),
        fullest_bound=max(bounds) / capacity_bytes,
        fullest_measured=max(found.values()) / capacity_bytes if found else None,
        measured_in=measured_in(record),
    )


def trained(record: RunRecord, plan: HybridPlan) -> dict[int, Observation]:
    """Observations of ranks that have finished a step, by rank."""
    return {
        one.rank: one
        for one in record.observations
        if one.peaks and one.num_steps and one.rank < plan.num_gpus
    }


def measured_in(record: RunRecord) -> str:
    """The measured attempt, if there are several."""
    number = max((one.attempt for one in record.observations), default=0)
    if len(record.attempts) <= 1 or not number:
        return ""
    return f", in attempt {number} of {len(record.attempts)}"


def load_line_bytes(record: RunRecord, plan: HybridPlan) -> int:
    """Memory that a plan may use of each of its devices, bytes."""
    memory_bytes = plan.offers[0].device_memory_bytes
    if record.answer is None:
        return memory_bytes
    return record.answer.certificate.space.limits.usable_bytes(memory_bytes)


def parts_of(
    record: RunRecord, plan: HybridPlan, stage: Stage, peak: PhasePeak, axis: Axis
) -> tuple[Part, ...]:
    """The expected peak of a stage, kind by kind."""
    found: Sequence[tuple[str, int]] = [(UNKNOWN_KIND, peak.device.expected_bytes)]
    problem = record.problem_of(plan)
    if problem is not None:
        found = [
            (part.kind, part.num_bytes)
            for part in breakdown(problem, plan, stage)
            if part.num_bytes
        ]
    ends = list(accumulate((num_bytes for _, num_bytes in found), initial=0))
    return tuple(
        Part(
            kind=kind,
            left=axis.percent(before),
            width=round(axis.percent(end) - axis.percent(before), 2),
            text=axis.scale.near_or_smaller(num_bytes),
        )
        for (kind, num_bytes), (before, end) in zip(found, pairwise(ends), strict=True)
    )


def stage_noun(plan: HybridPlan) -> str:
    """Word for a stage, which holds operators where these are placed one by one."""
    return "stage" if plan.placement is None else "device"


def layers_text(stage: Stage) -> str:
    """Layers of a stage, as the end of a list."""
    first, last = stage.chunks[0].first_layer, stage.chunks[-1].end_layer - 1
    return f", layers {span(first, last)}" if last > first else f", layer {first}"


def stage_bars(
    name: str,
    layers: str,
    stage: Stage,
    bar: Callable[[str, str, Observation | None], MemoryBar],
    measured: dict[int, Observation],
    *,
    by_stage: bool,
) -> list[MemoryBar]:
    """The bars of one stage: of each of its ranks, or of its fullest one.

    `bar` makes one from its name, what it holds and what was observed.
    """
    found = [(rank, measured.get(rank)) for rank in stage.ranks]
    if not by_stage:
        return [bar(f"rank {rank}", f"{name}{layers}", one) for rank, one in found]
    measured_ones = [one for _, one in found if one is not None]
    fullest = max(measured_ones, key=observed_peak_bytes, default=None)
    holds = f"{counted(len(found), 'rank')}{layers}"
    return [bar(name, holds, fullest)]


def memory_bar(
    parts: tuple[Part, ...],
    peak: PhasePeak,
    axis: Axis,
    name: str,
    holds: str,
    observation: Observation | None,
) -> MemoryBar:
    """One bar; those of a stage have parts, peak and axis in common."""
    device = peak.device
    cells = {
        "phase": str(peak.phase),
        "expected": axis.scale.near(device.expected_bytes),
        "bound": axis.scale.up(device.upper_bytes),
    }
    measured = None
    if observation is not None:
        num_bytes = observed_peak_bytes(observation)
        measured = axis.percent(num_bytes)
        error = percent_text(error_of(num_bytes, peak), signed=True)
        cells |= {"measured": axis.scale.near(num_bytes), "error": error}
    kinds = ", ".join(f"{part.kind} {part.text}" for part in parts)
    heard = ", ".join(f"{what} {cell}" for what, cell in cells.items())
    return MemoryBar(
        name=name,
        holds=holds,
        parts=parts,
        expected=axis.percent(device.expected_bytes),
        bound=axis.percent(device.upper_bytes),
        measured=measured,
        cells=cells,
        spoken=f"{name}, {holds}: {heard}; {kinds}",
    )


def error_of(measured_bytes: int, peak: PhasePeak) -> float:
    """Relative error of a measured peak: above zero if it is more than expected."""
    return measured_bytes / max(peak.device.expected_bytes, 1) - 1
