"""Answers a problem of a graph: operators placed one by one, in the place of layers.

In: a problem whose engine places operators. Out: `Solution` or `Infeasible`. Called by
`answer`.

Placement is heuristic: what fits does so by exact peaks, what fails does so by bounds,
and all between is undecided. A relative floor of rate would need the best rate of all
counts, which no heuristic knows; so only a number of samples per second is held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from plimsoll_planner import schedules, techniques
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.overhead.allowance import assumption_text
from plimsoll_planner.records.certificate import (
    Binding,
    Certificate,
    CountVerdict,
    Decisions,
    NearestMiss,
    Rule,
)
from plimsoll_planner.records.engine import Schedule, Sharding
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.plan import Chunk, HybridPlan, Phase, PodShape, Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import (
    Infeasible,
    SearchStatistics,
    Solution,
    Termination,
)
from plimsoll_planner.records.space import Space
from plimsoll_planner.search.build_plan import BOUNDS, phase_peak
from plimsoll_planner.search.front import unbeaten
from plimsoll_planner.search.placed_tuples import PlacedTuple, Placer
from plimsoll_planner.units import at_least

SIGHT = {
    Rule.PLACEMENT_BOUND: Binding.MEMORY,
    Rule.POD_SHAPE: Binding.GPU_LIMIT,
    Rule.BATCH_DOES_NOT_DIVIDE: Binding.BATCH,
    Rule.OUTSIDE_LIMITS: Binding.GPU_LIMIT,
}
"""What binds a count all of whose tuples fail: the first of these that occurs."""
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
    fitting = [one for found in counts.values() for one in found]
    fitting = [one for one in fitting if fits_at(problem)(one)]
    certificate = certificate_of(problem, counts)
    statistics = SearchStatistics(
        num_tuples=sum(map(len, counts.values())),
        num_plans=placer.num_placed,
        search_s=clock() - started_s,
    )
    if not fitting:
        return infeasible(problem, counts, certificate, statistics)
    chosen = chosen_of(problem, fitting)
    others = [one for one in unbeaten(fitting, numbers_of) if one is not chosen]
    gap = certificate.count_gap if goal_is_fewest(problem) else 1.0
    is_proven = certificate.is_proof and goal_is_fewest(problem)
    return Solution(
        termination=Termination.OPTIMAL if is_proven else Termination.WITHIN_GAP,
        gap=gap,
        plan=plan_of(problem, chosen),
        certificate=certificate,
        alternatives=tuple(plan_of(problem, one) for one in others),
        statistics=statistics,
        warnings=warnings_of(problem, chosen),
    )


def goal_is_fewest(problem: Problem) -> bool:
    """Whether the first count that fits is the answer."""
    return problem.objective.goal is Goal.MINIMIZE_GPUS


def rate_of(one: PlacedTuple) -> float:
    """Samples per second that are expected; 0 where nothing was placed."""
    if one.step is None or one.step.expected_s <= 0:
        return 0.0
    batch = one.mesh.data * one.micro_batch * one.num_micro_batches
    return batch / one.step.expected_s


def fits_at(problem: Problem) -> Callable[[PlacedTuple], bool]:
    """Whether a tuple fits the memory, and reaches a number of samples per second."""
    least = problem.objective.min_samples_per_s or 0.0
    return lambda one: one.verdict is Verdict.FITS and rate_of(one) >= float(least)


def peak_of(one: PlacedTuple) -> int:
    """Largest upper bound of a device, bytes."""
    assert one.placement is not None  # noqa: S101 - asked of those that fit
    return one.allowed.device(Bound.UPPER, one.placement.peak_bytes)


def price_of(problem: Problem, one: PlacedTuple) -> Decimal | None:
    """Price of all nodes for an hour, None if the offer states none."""
    price = problem.offers[one.offer].price_per_node_hour
    return None if price is None else price * one.topology.num_nodes


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


def cost_of(problem: Problem, one: PlacedTuple) -> float:
    """Price of a sample, in the currency of its offer; infinite where it has none."""
    price, rate = price_of(problem, one), rate_of(one)
    return float(price) / rate if price is not None and rate else float("inf")


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


def certificate_of(
    problem: Problem, counts: dict[int, list[PlacedTuple]]
) -> Certificate:
    """Certificate of all counts that were looked at."""
    verdicts = tuple(
        count_verdict(problem, count, found) for count, found in counts.items()
    )
    fitting = (
        count
        for count, found in counts.items()
        if any(one.verdict is Verdict.FITS for one in found)
    )
    return Certificate(
        space=Space(
            limits=replace(problem.limits, schedules=(Schedule.PLACED,)),
            offers=problem.offers,
            without=(*techniques.absent(problem), *schedules.absent()),
            override=problem.override,
            needed_override=problem.needed_override,
            least_micro_batch=problem.profile.graphs[0].micro_batch,
        ),
        counts=verdicts,
        fewest_at_any_speed=next(fitting, None),
    )


def count_verdict(
    problem: Problem, count: int, found: Sequence[PlacedTuple]
) -> CountVerdict:
    """Verdict on one count."""
    least = float(problem.objective.min_samples_per_s or 0.0)
    rules = [
        Rule.RATE_AT_EQUAL_ERROR
        if one.rule is Rule.PLACED and rate_of(one) < least
        else one.rule
        for one in found
    ]
    verdicts = [
        Verdict.UNDECIDED if rule is Rule.RATE_AT_EQUAL_ERROR else one.verdict
        for rule, one in zip(rules, found, strict=True)
    ]
    binding = None
    if set(verdicts) == {Verdict.FAILS}:
        binding = next(bound for rule, bound in SIGHT.items() if rule in rules)
    return CountVerdict(
        num_gpus=count,
        binding=binding,
        nearest_miss=miss_of(found) if binding is Binding.MEMORY else None,
        num_undecided=verdicts.count(Verdict.UNDECIDED),
        floor_samples_per_s=least,
        decisions=Decisions(
            pipeline_degree=tuple(one.mesh.pipeline for one in found),
            tensor_degree=(1,) * len(found),
            data_degree=tuple(one.mesh.data for one in found),
            micro_batch=tuple(one.micro_batch for one in found),
            largest_micro_batch=tuple(one.micro_batch for one in found),
            num_members=(1,) * len(found),
            sharding=(Sharding.NONE,) * len(found),
            schedule=(Schedule.PLACED,) * len(found),
            offer=tuple(one.offer for one in found),
            gpus_per_pod=tuple(one.topology.gpus_per_pod for one in found),
            verdict=tuple(verdicts),
            rule=tuple(rules),
            least_lower_bytes=tuple(one.least_bytes for one in found),
            best_samples_per_s=(0.0,) * len(found),
        ),
    )


def miss_of(found: Sequence[PlacedTuple]) -> NearestMiss:
    """The tuple whose bound is the smallest part of its capacity."""

    def part(one: PlacedTuple) -> float:
        return one.least_bytes / max(one.allowed.capacity_bytes, 1)

    missed = [one for one in found if one.rule is Rule.PLACEMENT_BOUND]
    nearest = min(missed, key=part)
    return NearestMiss(
        binding=Binding.MEMORY,
        offer=nearest.offer,
        needed_bytes=nearest.least_bytes,
        capacity_bytes=max(nearest.allowed.capacity_bytes, 0),
    )


def infeasible(
    problem: Problem,
    counts: dict[int, list[PlacedTuple]],
    certificate: Certificate,
    statistics: SearchStatistics,
) -> Infeasible:
    """Why there is no placement, as far as that is known."""
    found = [one for each in counts.values() for one in each]
    placed = [one for one in found if one.placement is not None]
    misses = [one.nearest_miss for one in certificate.counts if one.nearest_miss]
    binding = Binding.MEMORY
    if not placed or any(one.verdict is Verdict.FITS for one in found):
        rules = {one.rule for one in found}
        binding = next((b for r, b in SIGHT.items() if r in rules), Binding.RATE)
    change = "more devices, or an engine that places layers"
    if placed:
        least = min(placed, key=peak_of)
        change = (
            f"{least.mesh.num_gpus} devices of {at_least(peak_of(least))}: the least "
            f"that was found, at a micro-batch of {least.micro_batch}; or more devices"
        )
    return Infeasible(
        binding=binding,
        nearest_miss=min(
            (miss for miss in misses if miss.binding is binding),
            key=lambda miss: miss.short_bytes,
            default=None,
        ),
        nearest_change=change,
        certificate=certificate,
        statistics=statistics,
        warnings=warnings_of(problem, found[0]),
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
