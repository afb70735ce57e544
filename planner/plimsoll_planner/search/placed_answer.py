"""Answers a problem of a graph: operators placed one by one, in the place of layers.

In: a problem whose engine places operators. Out: `Solution` or `Infeasible`. Called by
`answer`.

Placement is heuristic: what fits does so by exact peaks, what fails does so by bounds,
and all between is undecided. A relative floor of rate would need the best rate of all
counts, which no heuristic knows; so only a number of samples per second is held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plimsoll_planner.overhead.allowance import assumption_text
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.plan import Chunk, HybridPlan, Phase, PodShape, Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import (
    Infeasible,
    SearchStatistics,
    Solution,
    Termination,
)
from plimsoll_planner.search.build_plan import BOUNDS, phase_peak
from plimsoll_planner.search.front import unbeaten
from plimsoll_planner.search.placed_numbers import (
    Gaps,
    cost_of,
    fits_at,
    peak_of,
    price_of,
    rate_of,
    rivals_of,
)
from plimsoll_planner.search.placed_tuples import PlacedTuple, Placer
from plimsoll_planner.search.placed_verdicts import certificate_of, infeasible

HEURISTIC = (
    "placement is heuristic: its peaks are exact, and a faster placement or one on "
    "fewer devices may exist, unless a bound proves that there is none"
)


def solve_placed(problem: Problem, clock: Callable[[], float]) -> Solution | Infeasible:
    """Best placement that was found, or what stands in the way; see `solve`.

    Raises:
        CannotPlanError: the profile has no graphs, or the question asks for layers.
    """
    started_s = clock()
    placer = Placer(problem)
    counts: dict[int, list[PlacedTuple]] = {}
    for count in range(1, problem.limits.max_gpus + 1):
        counts[count] = list(placer.tuples(count))
        if goal_is_fewest(problem) and any(map(fits_at(problem), counts[count])):
            break
    found = [one for each in counts.values() for one in each]
    fitting = list(filter(fits_at(problem), found))
    certificate = certificate_of(problem, counts)
    statistics = SearchStatistics(
        num_tuples=sum(map(len, counts.values())),
        num_plans=placer.num_placed,
        search_s=clock() - started_s,
    )
    if not fitting:
        warnings = warnings_of(problem, counts[1][0])
        return infeasible(problem, counts, certificate, statistics, warnings)
    chosen = chosen_of(problem, fitting)
    others = [one for one in unbeaten(fitting, numbers_of) if one is not chosen]
    rivals = rivals_of(problem, found, chosen)
    gaps = Gaps(problem=problem, rivals=rivals, chosen=chosen)
    is_proven = certificate.is_proof and goal_is_fewest(problem)
    return Solution(
        termination=Termination.OPTIMAL if is_proven else Termination.WITHIN_GAP,
        gap=certificate.count_gap if goal_is_fewest(problem) else gaps.of_goal(),
        memory_gap=gaps.of_memory() if goal_is_by_memory(problem) else 0.0,
        rate_gap=gaps.of_rate() if goal_is_fewest(problem) else 0.0,
        plan=plan_of(problem, chosen),
        certificate=certificate,
        alternatives=tuple(plan_of(problem, one) for one in others),
        statistics=statistics,
        warnings=warnings_of(problem, chosen),
    )


def goal_is_by_memory(problem: Problem) -> bool:
    """Whether plans are chosen by their memory."""
    return problem.objective.goal in (Goal.MINIMIZE_GPUS, Goal.MINIMIZE_MEMORY)


def goal_is_fewest(problem: Problem) -> bool:
    """Whether the first count that fits is the answer."""
    return problem.objective.goal is Goal.MINIMIZE_GPUS


def numbers_of(one: PlacedTuple) -> tuple[float, ...]:
    """Numbers of a plan that are better if smaller."""
    return peak_of(one), -rate_of(one), one.mesh.num_gpus


def chosen_of(problem: Problem, fitting: Sequence[PlacedTuple]) -> PlacedTuple:
    """The tuple that the goal asks for."""
    goal = problem.objective.goal
    if goal is Goal.MINIMIZE_MEMORY:
        return min(fitting, key=lambda one: (peak_of(one), -rate_of(one)))
    if goal is Goal.MAXIMIZE_THROUGHPUT:
        return max(fitting, key=lambda one: (rate_of(one), -peak_of(one)))
    if goal is Goal.MINIMIZE_COST:
        return min(fitting, key=lambda one: (cost_of(problem, one), peak_of(one)))
    best = max(map(rate_of, fitting))
    least = best * (1 - problem.objective.throughput_tolerance)
    near = [one for one in fitting if rate_of(one) >= least]
    return min(near, key=lambda one: (peak_of(one), -rate_of(one)))


def plan_of(problem: Problem, one: PlacedTuple) -> HybridPlan:
    """Plan with everything that a launch needs."""
    offer, placement = problem.offers[one.offer], one.placement
    assert placement is not None  # noqa: S101 - asked of those that fit
    stages = tuple(
        Stage(
            chunks=(Chunk(first_layer=device, end_layer=device + 1),),
            ranks=tuple(one.mesh.ranks(device)),
            offer=0,
            data_degree=one.mesh.data,
            in_flight_cap=1,
            peaks=(
                phase_peak(
                    one.allowed,
                    Phase.BACKWARD
                    if peak.place < len(placement.order)
                    else Phase.OPTIMIZER_STEP,
                    dict.fromkeys(BOUNDS, peak.peak_bytes),
                ),
            ),
        )
        for device, peak in enumerate(placement.peaks)
    )
    return HybridPlan(
        fingerprint=problem.profile.fingerprint,
        global_batch_size=problem.global_batch_size,
        micro_batch=one.micro_batch,
        num_micro_batches=one.num_micro_batches,
        schedule=Schedule.PLACED,
        engine=problem.engine.engine,
        engine_version=problem.engine.version,
        optimizer_mode=problem.profile.recipe.optimizer_mode,
        offers=(offer,),
        stages=stages,
        pods=PodShape(
            num_pods=one.topology.num_pods,
            gpus_per_pod=one.topology.gpus_per_pod,
            host_memory_bytes_per_pod=0,
        ),
        step_time=one.step,
        price_per_hour=price_of(problem, one),
        currency=offer.currency,
        placement=placement,
    )


def warnings_of(problem: Problem, one: PlacedTuple) -> tuple[str, ...]:
    """Warnings of an answer: what it rests on that nobody proved or measured."""
    found = [HEURISTIC]
    if one.allowed.is_assumed:
        product = problem.offers[one.offer].device_product
        found.append(
            f"what {product} holds besides tensors was never measured: "
            f"{assumption_text(one.allowed)} is assumed, from public figures; the "
            "first run narrows it"
        )
    if not goal_is_fewest(problem) or problem.objective.min_samples_per_s is None:
        found.append(
            "no floor of rate relative to the best is held, as the best placement is "
            "not known: ask for a number of samples/s"
        )
    return tuple(found)
