"""The head of a report: the plan in words, how it went, and the main figures.

In: a record and its bars. Out: a `HeadlineView`. Called by `page`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from plimsoll_cli.output.answer_tables import plan_line
from plimsoll_cli.output.scales import ByteScale, percent_text, seconds_text, time_text
from plimsoll_cli.report.memory_chart import MemoryView
from plimsoll_cli.report.proof import sentence
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_operator.api.reasons import DRY_RUN
from plimsoll_operator.api.status import ConditionType, Truth
from plimsoll_operator.rules.summary import observed_status, step_fault
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.solution import Infeasible, Solution, Termination
from plimsoll_planner.text.counts import counted, gpus_text
from plimsoll_planner.text.explain import (
    ending_text,
    fail_text,
    infeasible_lines,
    is_searched,
    reason_text,
)
from plimsoll_planner.text.headline import shortfall_text
from plimsoll_planner.text.plans import cost_of, duration_text
from plimsoll_planner.text.unfit import unfit_text
from plimsoll_planner.units import number_text


class Tone(StrEnum):
    """Look of a state; its words say the same."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """State of a run, in a word and a line."""

    tone: Tone
    word: str
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A number that people look for first."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadlineView:
    """The first screen."""

    title: str
    lead: str
    proof: str
    state: State
    figures: tuple[Figure, ...]


def headline_view(
    record: RunRecord, plan: HybridPlan | None, memory: MemoryView | None
) -> HeadlineView:
    """The first screen of a report."""
    return HeadlineView(
        title=title_of(record, plan),
        lead=lead_of(record, plan),
        proof="" if plan is None else plan_line(plan),
        state=state_of(record),
        figures=tuple(figures_of(record, plan, memory)),
    )


def title_of(record: RunRecord, plan: HybridPlan | None) -> str:
    """The plan in a few words."""
    if plan is None:
        is_refused = isinstance(record.answer, Infeasible)
        return "No plan fits" if is_refused else "No plan yet"
    offer = plan.offers[0]
    memory_bytes = offer.device_memory_bytes
    memory = ByteScale.up_to(memory_bytes).down(memory_bytes)
    title = f"{gpus_text(plan.num_gpus, plan.offers)} of {memory}"
    fixed = fixed_answer(record)
    return title if fixed is None else f"{title}: {unfit_text(fixed)}"


def fixed_answer(record: RunRecord) -> Solution | None:
    """Answer that no search would choose, if nothing has run since."""
    answer = record.answer
    if not isinstance(answer, Solution) or record.attempts:
        return None
    return answer if answer.termination is Termination.FIXED else None


def lead_of(record: RunRecord, plan: HybridPlan | None) -> str:
    """Reason why no smaller plan fits, or why none does."""
    answer = record.answer
    if isinstance(answer, Infeasible):
        lines = infeasible_lines(answer)
        reasons = (line.removeprefix("no plan: ") for line in lines)
        return " ".join(sentence(line, record.words) for line in reasons)
    if answer is None or plan is None:
        return "The search has not answered yet."
    if answer.termination is Termination.FIXED:
        certificate = answer.certificate
        why = reason_text(
            certificate.counts[answer.plan.num_gpus - 1], certificate.space
        )
        return f"{sentence(ending_text(answer))} {sentence(why)}"
    return fewer_text(answer, plan)


def fewer_text(answer: Solution, plan: HybridPlan) -> str:
    """Memory that one device fewer lacks."""
    certificate = answer.certificate
    fewer = plan.num_gpus - 1
    counts = certificate.counts
    if fewer == 0:
        return "One is the least there is."
    if fewer > len(counts) or not is_searched(counts[fewer - 1]):
        return "Fewer are outside what was fixed or allowed."
    count = counts[fewer - 1]
    if count.verdict is Verdict.FITS:
        fits = "fits" if fewer == 1 else "fit"
        do = "does" if fewer == 1 else "do"
        return f"{fewer} {fits} too, and {do} worse by what was asked for."
    if count.verdict is Verdict.UNDECIDED:
        return f"{fewer} undecided: {reason_text(count, certificate.space)}."
    miss = count.nearest_miss
    if miss is None or not miss.short_bytes:
        return f"{fail_text(fewer)}: {reason_text(count, certificate.space)}."
    return f"{shortfall_text(count)}."


def state_of(record: RunRecord) -> State:
    """State of a run, by the summary, or by the condition that is waited for."""
    status = record.status
    summary = status.condition(ConditionType.SUCCEEDED)
    if summary is not None and summary.status is Truth.TRUE:
        if summary.reason == DRY_RUN:
            return planned_state(record)
        when = status.completion_time or summary.last_transition_time
        return State(tone=Tone.GOOD, word="Succeeded", line=time_text(when))
    if summary is not None and summary.status is Truth.FALSE:
        line = ": ".join(filter(None, (summary.reason, summary.message)))
        return State(tone=Tone.BAD, word="Failed", line=line)
    if record.is_left:
        word, _, line = record.next_step.replace("`", "").partition(": ")
        return State(tone=Tone.OPEN, word=word.capitalize(), line=line)
    reached = [c for c in status.conditions if c.reason != "Waiting"]
    if not reached:
        return State(tone=Tone.OPEN, word="Not begun", line="")
    line = ": ".join(filter(None, (reached[-1].reason, reached[-1].message)))
    return State(tone=Tone.OPEN, word="Under way", line=line)


def planned_state(record: RunRecord) -> State:
    """State of a dry run; a plan that was fixed need not fit."""
    answer = fixed_answer(record)
    if answer is None:
        return State(tone=Tone.GOOD, word="Planned", line="a dry run, not launched")
    return State(
        tone=Tone.BAD if answer.is_proven_unfit else Tone.OPEN,
        word=unfit_text(answer).capitalize(),
        line="fixed by hand, not launched",
    )


def figures_of(
    record: RunRecord, plan: HybridPlan | None, memory: MemoryView | None
) -> Iterator[Figure]:
    """Yield the main figures; what was not measured is shown as predicted."""
    if record.losses or record.observations:
        yield steps_figure(record)
    losses = [loss for _, loss in record.losses if math.isfinite(loss)]
    if losses:
        value = f"{losses[0]:.4g} → {losses[-1]:.4g}"
        yield Figure(name="Loss", value=value, note=lost_text(record))
    if plan is not None:
        yield from speed_figures(record, plan)
    if memory is not None:
        yield from memory_figures(memory)


def lost_text(record: RunRecord) -> str:
    """First step without a finite loss, and how many more there are; empty if none."""
    lost = [step for step, loss in record.losses if not math.isfinite(loss)]
    if not lost:
        return ""
    more = f", nor at {len(lost) - 1} more" if lost[1:] else ""
    return f"not finite at step {lost[0]:,}{more}"


def steps_figure(record: RunRecord) -> Figure:
    """Number of steps that were finished, and asked for."""
    done = [one.num_steps for one in record.observations]
    done += [step for step, _ in record.losses]
    asked = record.problem.num_steps if record.problem is not None else None
    note = f"of {asked:,}" if asked else ""
    return Figure(name="Steps", value=f"{max(done):,}", note=note)


def speed_figures(record: RunRecord, plan: HybridPlan) -> Iterator[Figure]:
    """Yield the rate and the seconds of a step, measured and predicted."""
    found = observed_status(plan, record.observations)
    rate, time = plan.samples_per_s, plan.step_time
    if found is not None and found.step_seconds:
        step_s = float(found.step_seconds)
        note = f"predicted {number_text(rate, 3)}" if rate else ""
        value = f"{number_text(plan.global_batch_size / step_s, 3)} samples/s"
        yield Figure(name="Rate", value=value, note=note)
        note = f"predicted {seconds_text(time.expected_s)}" if time else ""
        if time and step_fault(plan, found):
            low, high = seconds_text(time.lower_s), seconds_text(time.upper_s)
            note = f"outside of the predicted {low} to {high}"
        yield Figure(name="Step", value=seconds_text(step_s), note=note)
    elif rate and time:
        yield Figure(name="Rate, predicted", value=f"{number_text(rate, 3)} samples/s")
        yield Figure(
            name="Step, predicted",
            value=seconds_text(time.expected_s),
            note=f"{seconds_text(time.lower_s)} to {seconds_text(time.upper_s)}",
        )
        yield from length_figures(record, plan)


def length_figures(record: RunRecord, plan: HybridPlan) -> Iterator[Figure]:
    """Yield how long the whole training takes, and what it costs."""
    num_steps = None if record.problem is None else record.problem.num_steps
    if num_steps is not None and plan.step_time is not None:
        cost = cost_of(plan, num_steps)
        yield Figure(
            name=f"{num_steps:,} steps, predicted",
            value=duration_text(num_steps * plan.step_time.expected_s),
            note="" if cost is None else f"{cost:.2f} {plan.currency}",
        )


def memory_figures(memory: MemoryView) -> Iterator[Figure]:
    """Yield how full the fullest device is, and how well that was known."""
    measured = memory.fullest_measured
    yield Figure(
        name="Fullest device",
        value=f"{memory.fullest_bound:.1%}",
        note="of its load line at most"
        + ("" if measured is None else f", measured {measured:.1%}"),
    )
    if memory.errors:
        yield Figure(
            name="Worst error of a peak",
            value=percent_text(max(map(abs, memory.errors))),
            note=f"predicted for {counted(len(memory.errors), 'rank')}",
        )
