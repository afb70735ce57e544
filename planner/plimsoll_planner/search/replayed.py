"""Holds a plan against the replay of its ranks, and searches again where they differ.

In: a problem, and a function that replays a plan. Out: the answer of the last round,
and what every round found. Called by the CLI and the operator, which know how to
replay; the rules are here.

    formula's interval        |------------[----x----]------------|
    replay inside             the plan stands, its interval shrinks to the replay's own
    replay outside            the kinds of layers in that stage are widened, as they are
                              split there, until their interval holds it, and the search
                              starts again

Where operators are placed, peaks follow from the plan's order and have no interval to
widen: a replay outside ends the search, and the plan is not certified.

A replay for CUDA does not see what kernels allocate inside themselves, which a profile
that was measured there has seen: its intervals shrink from below only.

A widened profile can only turn proofs into open questions, never the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from plimsoll_planner.memory.chain_bytes import rows_of
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.layer_costs import ActivationColumns, ByteColumns, Source
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.plan import HybridPlan, Phase, PhasePeak, Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay, ReplayedStage
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.search.answer import solve

MOST_ROUNDS = 5
"""Of search and replay; a plan that still differs then is not certified."""
REPLAY_ERROR = {DeviceKind.EMULATED: 0.005, DeviceKind.CUDA: 0.02}
"""Error that a replay may have. Emulated: the bar of the benchmark of truth. CUDA: not
measured yet; workspaces inside kernels are what a replay does not see."""
SLACK = 0.001
"""Part of the peak by which formula and replay may differ unreported: the
scalars of a step, which only a replay sees."""
MOST_ERROR = 100.0
"""The largest relative error that a profile holds."""

ReplayPlan = Callable[[HybridPlan], Replay | None]
"""None where the plan was not replayed yet: asked again later, the answer goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """A stage whose replay lies outside of its predicted interval."""

    stage: int
    predicted: ByteInterval
    """Of the largest phase."""
    replayed_bytes: int

    needed_bytes: int
    """By how much the interval must grow to hold the replay."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """One search and its replay."""

    plan: HybridPlan
    replay: Replay
    disagreements: tuple[Disagreement, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedAnswer:
    """The last answer, and how it came about."""

    answer: Solution | Infeasible
    """If a plan was certified, its peaks are the replay's."""
    rounds: tuple[Round, ...]
    problem: Problem
    """As replays have widened it."""
    waits: bool = False
    """The answer's plan was not replayed yet."""

    @property
    def is_certified(self) -> bool:
        """Whether a plan stands whose replay agrees."""
        if self.waits or not isinstance(self.answer, Solution):
            return False
        return bool(self.rounds) and not self.rounds[-1].disagreements


def solve_with_replay(
    problem: Problem,
    replay: ReplayPlan,
    first: Solution | Infeasible | None = None,
) -> ReplayedAnswer:
    """Search, replay the winner, and search again until both agree.

    The same replays lead to the same answer, so that a search that had to wait for one
    begins anew when it is there.

    Args:
        problem: the question.
        replay: gives the replay of a plan, None where there is none yet.
        first: what `solve` answers, from a search that had to wait; None: it is asked.
    """
    rounds: list[Round] = []
    answer = first or solve(problem)
    while isinstance(answer, Solution) and len(rounds) < MOST_ROUNDS:
        found = replay(answer.plan)
        if found is None:
            return ReplayedAnswer(
                answer=answer, rounds=tuple(rounds), problem=problem, waits=True
            )
        outside = disagreements(problem, answer.plan, found)
        rounds.append(Round(plan=answer.plan, replay=found, disagreements=outside))
        if not outside:
            answer = replace(answer, plan=narrowed(problem.profile, answer.plan, found))
            break
        if answer.plan.placement is not None:
            break
        if len(rounds) < MOST_ROUNDS:
            profile = widened(problem.profile, answer.plan, outside)
            problem = replace(problem, profile=profile)
            answer = solve(problem)
    return ReplayedAnswer(answer=answer, rounds=tuple(rounds), problem=problem)


def disagreements(
    problem: Problem, plan: HybridPlan, found: Replay
) -> tuple[Disagreement, ...]:
    """Stages whose replay is not as predicted, or does not fit."""
    return tuple(
        Disagreement(
            stage=replayed.stage,
            predicted=largest(stage),
            replayed_bytes=replayed.peak_bytes,
            needed_bytes=needed,
        )
        for stage, replayed in zip(plan.stages, found.stages, strict=True)
        if (needed := outside_bytes(problem, plan, stage, replayed)) > 0
    )


def outside_bytes(
    problem: Problem, plan: HybridPlan, stage: Stage, replayed: ReplayedStage
) -> int:
    """Bytes by which a replay is outside its interval, or beyond the capacity."""
    predicted, peak = largest(stage), replayed.peak_bytes
    offer = plan.offers[stage.offer]
    peaks = replayed_peaks(problem.profile, stage, replayed)
    device_bytes = max(peak.device.upper_bytes for peak in peaks)
    capacity_bytes = problem.limits.usable_bytes(offer.device_memory_bytes)
    return max(
        math.ceil(peak * (1 - SLACK)) - predicted.upper_bytes,
        predicted.lower_bytes - math.floor(peak * (1 + SLACK)),
        # A plan that a person fixed may lie beyond the capacity from the start.
        device_bytes - max(capacity_bytes, device_upper_bytes(stage)),
    )


def device_upper_bytes(stage: Stage) -> int:
    """Upper bound of the stage's device bytes over all phases."""
    return max(peak.device.upper_bytes for peak in stage.peaks)


def largest(stage: Stage) -> ByteInterval:
    """Interval of the stage's allocated peak over all phases."""
    peaks = [peak.allocated for peak in stage.peaks]
    return ByteInterval(
        lower_bytes=max(peak.lower_bytes for peak in peaks),
        expected_bytes=max(peak.expected_bytes for peak in peaks),
        upper_bytes=max(peak.upper_bytes for peak in peaks),
    )


def widened(
    profile: ModelProfile, plan: HybridPlan, outside: tuple[Disagreement, ...]
) -> ModelProfile:
    """Profile with wider intervals for the kinds in stages that differ.

    The transient of one layer bounds the peak of its stage, so widening it by the bytes
    that are outside makes the stage's interval hold the replay.
    """
    rows: dict[int, int] = {}
    for one in outside:
        stage = plan.stages[one.stage]
        row_of = rows_of(profile, stage.variant)
        for chunk in stage.chunks:
            for row in row_of[chunk.first_layer : chunk.end_layer]:
                rows[row] = max(rows.get(row, 0), one.needed_bytes)
    costs = profile.costs
    wider: dict[str, Any] = {
        way.field: widened_transient(columns, rows, plan.micro_batch)
        for way, columns in costs.ways.items()
    }
    return replace(profile, costs=replace(costs, **wider))


def widened_transient(
    columns: ActivationColumns, rows: dict[int, int], micro_batch: int
) -> ActivationColumns:
    """Columns whose backward transients are wider by some bytes in some rows."""

    def wider(transient: ByteColumns) -> ByteColumns:
        errors = list(transient.relative_error)
        for row, num_bytes in rows.items():
            value = max(transient.at(row, micro_batch).expected_bytes, 1)
            errors[row] = min(errors[row] + num_bytes / value, MOST_ERROR)
        return replace(transient, relative_error=tuple(errors))

    return replace(
        columns,
        backward_transient=wider(columns.backward_transient),
        backward_transient_at_end=wider(columns.backward_transient_at_end),
    )


def narrowed(profile: ModelProfile, plan: HybridPlan, found: Replay) -> HybridPlan:
    """Plan with the replay's peaks in place of the formula's."""
    return replace(
        plan,
        stages=tuple(
            replace(stage, peaks=replayed_peaks(profile, stage, replayed))
            for stage, replayed in zip(plan.stages, found.stages, strict=True)
        ),
    )


def replayed_peaks(
    profile: ModelProfile, stage: Stage, replayed: ReplayedStage
) -> tuple[PhasePeak, ...]:
    """Peaks of the replayed phases; what lies outside tensors stays as it was.

    A replay does not tell forward from backward: both end with the last micro-batch.
    A device on which operators are placed has one predicted peak, whatever the phase.
    """
    by_phase = {peak.phase: peak for peak in stage.peaks}
    usual = by_phase.get(Phase.OPTIMIZER_STEP, stage.peaks[0])
    made: list[PhasePeak] = []
    for peak in replayed.peaks:
        like = by_phase.get(peak.phase, usual)
        thought = largest(stage) if peak.phase is Phase.BACKWARD else like.allocated
        allocated = both_hold(profile, thought, peak.allocated_bytes)
        made.append(
            PhasePeak(
                phase=peak.phase,
                allocated=allocated,
                reserved=above(allocated, like.allocated, like.reserved),
                device=above(allocated, like.allocated, like.device),
            )
        )
    return tuple(made)


def both_hold(
    profile: ModelProfile, thought: ByteInterval, replayed_bytes: int
) -> ByteInterval:
    """Interval of the peak if formula and replay are both right."""
    kind = profile.device_kind
    error = REPLAY_ERROR[kind]
    lower = math.floor(replayed_bytes * (1 - error))
    upper = max(thought.upper_bytes, replayed_bytes)
    is_measured = Source.MEASURED in profile.costs.kept.backward_transient.source
    if kind is DeviceKind.EMULATED or not is_measured:
        upper = min(upper, math.ceil(replayed_bytes * (1 + error)))
    return ByteInterval(
        lower_bytes=max(lower, min(thought.lower_bytes, replayed_bytes)),
        expected_bytes=replayed_bytes,
        upper_bytes=upper,
    )


def above(base: ByteInterval, inner: ByteInterval, outer: ByteInterval) -> ByteInterval:
    """`base` with the surplus of `outer` over `inner`."""
    return ByteInterval(
        lower_bytes=base.lower_bytes + outer.lower_bytes - inner.lower_bytes,
        expected_bytes=base.expected_bytes
        + outer.expected_bytes
        - inner.expected_bytes,
        upper_bytes=base.upper_bytes + outer.upper_bytes - inner.upper_bytes,
    )
