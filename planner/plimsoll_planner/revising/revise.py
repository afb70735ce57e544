"""A revision of a plan that runs, for stages that are not as planned.

In: the problem that the plan answers, the plan, what is observed of its stages, steps
left. Out: a `Revision`, or why the plan stays (`Stays`). Pure. Called by the operator.

The search is asked again with what is fixed held fixed: the same tuple, state held by
the same stages alike. A revision is worth it

    if the plan that runs does not fit on the devices as they are, whatever it costs
    else if a step is shorter by more than 5 %, and the seconds of the moves are won
    back within 1 % of the steps that are left

and if every stage has room for the layers on their way, and for what building one
takes. Where the goal is the least memory, no stage may hold more than the fullest one
does now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.revision import Move, Revision, cuts_of, num_layers_of
from plimsoll_planner.revising.moves import arrivals, moves_between
from plimsoll_planner.revising.observed import ObservedStages, fits
from plimsoll_planner.search.build_plan import build_plan
from plimsoll_planner.search.revised_search import RevisedSearch

LEAST_GAIN = 0.05
"""Part of a step, expected."""
PAID_BACK_WITHIN = 0.01
"""Of the steps that are left."""
MOVE_S = 0.03
"""For each move, beside the bytes: the layer is built and state made. Twice the longest
of 20 measured: 3.1 to 14.8 ms for 0.2 million parameters, torch 2.15, gloo, 2 cores.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stays:
    """The plan that runs stays."""

    reason: str


def revise(
    problem: Problem, plan: HybridPlan, observed: ObservedStages, steps_left: int
) -> Revision | Stays:
    """A revision that is worth it, or why there is none."""
    if observed.cause is None:
        return Stays(reason="all stages are as planned")
    if plan.mesh is None:
        return Stays(reason="its stages have different degrees")
    if problem.profile.carried.name:
        return Stays(reason="its layers carry values past others, so they do not move")
    refusal = Stays(reason="")
    for asked in variants(problem):
        search = RevisedSearch(asked, plan, lacking_bytes=observed.lacking_bytes)
        if search.tables.is_grouped:
            return Stays(reason="of so many layers, stages begin with some alone")
        search.take_paces(observed.passes_s)
        found = revised(search, observed, steps_left)
        if isinstance(found, Revision):
            return found
        refusal = refusal if refusal.reason else found
    return refusal


def variants(problem: Problem) -> list[Problem]:
    """The problem, then without what may take more of the machine's memory.

    A pod keeps the memory that it asked for.
    """
    without = replace(problem, limits=replace(problem.limits, offload=False))
    return [problem, without] if problem.limits.offload else [problem]


def revised(
    search: RevisedSearch, observed: ObservedStages, steps_left: int
) -> Revision | Stays:
    """The revision that a search finds, or why there is none."""
    plan, cause = search.plan, observed.cause
    assert cause is not None  # noqa: S101 - see `revise`
    found = search.fastest_within(most_bytes(search))
    if found is None:
        return Stays(reason="no other plan of its stages fits on machines as they are")
    after = kept_world(plan, build_plan(search, found))
    if after is None:
        return Stays(reason="its pods have too little memory besides that of devices")
    before_s, after_s = search.step_now_s(), found.step_s
    moves = moves_between(
        cuts_of(plan), cuts_of(after), num_layers_of(plan), search.at_rest_bytes
    )
    refusal = ""
    if is_same(plan, after):
        refusal = "no other plan of its stages is faster"
    elif fits_now(search, observed):
        won_s = PAID_BACK_WITHIN * steps_left * (before_s - after_s)
        if before_s - after_s <= LEAST_GAIN * before_s:
            gain = max(0.0, 1 - after_s / before_s)
            refusal = f"a step would be only {100 * gain:.1f} % shorter"
        elif won_s < moves_s(search, moves):
            refusal = f"{steps_left} steps are too few to win back what moves take"
    if not refusal and not has_room(search, moves):
        refusal = "a stage has no room for the layers on their way"
    if refusal:
        return Stays(reason=refusal)
    return Revision(
        plan=after,
        follows=digest_of(plan),
        moves=moves,
        cause=cause,
        paces=search.paces,
        lacking_bytes=observed.lacking_bytes,
        step_before_s=before_s,
        step_after_s=after_s,
    )


def most_bytes(search: RevisedSearch) -> int:
    """Most tensor bytes of a rank, besides the devices' limit."""
    if search.problem.objective.goal is not Goal.MINIMIZE_MEMORY:
        return LARGEST_BYTES
    # Those of the plan may be a replay's, which the search does not know.
    plan = build_plan(search, search.running)
    peaks = (peak.allocated.upper_bytes for s in plan.stages for peak in s.peaks)
    return max(peaks, default=LARGEST_BYTES)


def kept_world(plan: HybridPlan, after: HybridPlan) -> HybridPlan | None:
    """The plan as a revision of another one; None if its pods ask for too little."""
    needed = after.pods.host_memory_bytes_per_pod
    if needed > plan.pods.host_memory_bytes_per_pod:
        return None
    return replace(
        after,
        revision=plan.revision + 1,
        engine_version=plan.engine_version,
        pods=plan.pods,
        price_per_hour=plan.price_per_hour,
        currency=plan.currency,
    )


def is_same(plan: HybridPlan, after: HybridPlan) -> bool:
    """Whether ranks would do the same under both."""
    return all(
        getattr(old, name) == getattr(new, name)
        for old, new in zip(plan.stages, after.stages, strict=True)
        for name in ("chunks", "recomputed_layers", "offloaded_layers", "in_flight_cap")
    )


def fits_now(search: RevisedSearch, observed: ObservedStages) -> bool:
    """Whether the plan that runs fits on the devices as they are."""
    plan, limits = search.plan, search.problem.limits
    pairs = zip(plan.stages, observed.lacking_bytes, strict=True)
    return all(fits(plan, limits, stage, lacking) for stage, lacking in pairs)


def moves_s(search: RevisedSearch, moves: tuple[Move, ...]) -> float:
    """Seconds of moves, one after the other."""
    hops = search.placed(search.candidate).hops
    return sum(
        MOVE_S
        + hops[min(one.source, one.destination)].seconds(
            search.at_rest_bytes(one.destination, one.layer, one.layer + 1)
        )
        for one in moves
    )


def has_room(search: RevisedSearch, moves: tuple[Move, ...]) -> bool:
    """Whether each layer fits beside what its new stage holds, built and then trained.

    Between two steps there are no activations.
    """
    capacity = search.capacity(search.candidate, Bound.UPPER)
    plan = search.plan
    for move, before, after in arrivals(cuts_of(plan), moves, num_layers_of(plan)):
        stage = move.destination
        room = search.stage_capacity(stage, capacity)
        built = search.at_rest_bytes(stage, *before) + search.built_bytes(move.layer)
        if max(built, search.at_rest_bytes(stage, *after)) > room:
            return False
    return True
