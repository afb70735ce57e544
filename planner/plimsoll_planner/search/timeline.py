"""When every pass of a plan's step begins and ends, as the walk of its schedule has it.

In: a problem and its plan. Out: a `Timeline`. Called by the report. The seconds are the
expected ones, and the walk is the one that the search compares plans by (`step_walk`).

Of a step with many micro-batches only the beginning is walked. A schedule of fewer
micro-batches is the same one up to the last forward pass of the first stage: what it
does otherwise, every other stage does after it has received that micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.plan import HybridPlan, Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.planned import candidate_of, found_of
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.timing.schedule import Operation, Pass, PipelineSchedule
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.step_walk import pass_ends, walk, walk_alone
from plimsoll_planner.timing.ticks import TICKS_PER_S, nearest
from plimsoll_planner.timing.topology import Topology

TICK_S = 1 / TICKS_PER_S


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedPass:
    """Activity of a rank for a while."""

    operation: Operation | None
    """None: it exchanges gradients and steps its optimizer."""
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """The first replica of every stage; others are like it, or wait for their core."""

    stages: tuple[tuple[TimedPass, ...], ...]
    """The passes of each stage, in order; of a beginning those that begin in it."""
    end_s: float
    """Of the step, or of its beginning."""
    num_micro_batches: int
    """That the first stage begins with in that time."""
    is_whole: bool
    """It is the whole step."""


def timeline(
    problem: Problem, plan: HybridPlan, most_micro_batches: int
) -> Timeline | None:
    """Walk a plan's step; None if its stages differ in their degrees.

    Of a step with more micro-batches the beginning with so many.
    """
    mesh = plan.mesh
    if mesh is None:
        return None
    cuts = tuple(stage.chunks[0].first_layer for stage in plan.stages)
    fixed = replace(problem.needed_override, cuts=cuts)
    search = TupleSearch(replace(problem, offers=plan.offers, override=fixed))
    count = min(plan.num_micro_batches, most_micro_batches)
    candidate = candidate_of(plan, mesh, plan.offers)
    found = found_of(search, plan, candidate)
    times = [
        paced(times, stage, plan.num_micro_batches)
        for times, stage in zip(
            search.stage_times(found, Bound.EXPECTED), plan.stages, strict=True
        )
    ]
    placed = search.placed(candidate)
    of_step = candidate.schedule, times, plan.num_micro_batches, placed
    # If ranks share cores, all of a step is stretched to its length.
    longer = walk(*of_step) / max(walk_alone(*of_step), TICK_S)
    stages = timed_passes(candidate.schedule, times, count, placed, longer)
    end_s = max(passes[-1].end_s for passes in stages)
    is_whole = count == plan.num_micro_batches
    if not is_whole:
        end_s = max(one.end_s for one in stages[0] if is_forward(one))
        stages = [[one for one in passes if one.begin_s < end_s] for passes in stages]
    return Timeline(
        stages=tuple(map(tuple, stages)),
        end_s=end_s,
        num_micro_batches=count,
        is_whole=is_whole,
    )


def paced(times: StageTimes, stage: Stage, num_micro_batches: int) -> StageTimes:
    """Seconds of a stage as the plan expects them: a revision has paces of its own."""
    profiled_s = times.passes_s(num_micro_batches)
    if stage.passes is None or not profiled_s:
        return times
    pace = stage.passes.expected_s / profiled_s
    return replace(
        times,
        forward_s=nearest(times.forward_s * pace),
        backward_s=nearest(times.backward_s * pace),
    )


def is_forward(one: TimedPass) -> bool:
    """Whether it is a forward pass."""
    return one.operation is not None and one.operation.kind is Pass.FORWARD


def timed_passes(
    schedule: PipelineSchedule,
    stages: list[StageTimes],
    num_micro_batches: int,
    placed: Topology,
    longer: float,
) -> list[list[TimedPass]]:
    """Passes of one replica of each stage, and the end of its step.

    All times are `longer` times those of the walk.
    """
    made: list[list[TimedPass]] = []
    for place, ends in enumerate(
        pass_ends(schedule, stages, num_micro_batches, placed)
    ):
        stage = stages[place]
        order = list(
            schedule.operations(
                place, len(stages), num_micro_batches, stage.in_flight_cap
            )
        )
        spans = [
            (end - (stage.forward_s if kind is Pass.FORWARD else stage.backward_s), end)
            for kind, end in zip((o.kind for o in order), ends, strict=True)
        ]
        spans.append((ends[-1], ends[-1] + stage.end_s))
        stretched = [(nearest(longer * a), nearest(longer * b)) for a, b in spans]
        made.append(named(order, stretched))
    return made


def named(order: list[Operation], spans: list[tuple[float, float]]) -> list[TimedPass]:
    """Passes with their spans of time; the last is the end of the step."""
    return [
        TimedPass(operation=operation, begin_s=begin_s, end_s=end_s)
        for operation, (begin_s, end_s) in zip([*order, None], spans, strict=True)
    ]
