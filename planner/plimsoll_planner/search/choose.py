"""Chooses a plan by the goal of the problem.

In: the tuples of a problem and the rate floor. Out: `Choice`, None where no plan fits
and is fast enough. Called by `answer`.

    MinimizeGPUs         fewest GPUs with a plan at the floor; there, the least peak of
                         those within the tolerance of the best rate
    MinimizeMemory       least peak on any device at the floor, then fewer GPUs
    MinimizeCost         least price of whole nodes times hours of the whole training
    MaximizeThroughput   most samples per second, then fewer GPUs

Among equals the cheaper nodes are chosen.

The last two have no relative floor: neither is degenerate without one. Their plans are
compared by walked steps; `gap` says what the step bounds leave open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll_planner.memory.chain_bytes import Bound
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.problem import Goal
from plimsoll_planner.search.explore import Explorer, is_fitting
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_search import Found
from plimsoll_planner.search.verdicts import Decision, Floor, samples_per_s
from plimsoll_planner.units import S_PER_HOUR


def no_counts() -> dict[int, list[Decision]]:
    """Return an empty mapping."""
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The plan, and how far it may be from the best in the goal's own measure."""

    found: Found
    gap: float = 0.0
    decided: Mapping[int, list[Decision]] = field(default_factory=no_counts)
    """Counts that were judged on the way."""


def choose(explorer: Explorer, floor: Floor) -> Choice | None:
    """Return the plan that the goal asks for."""
    match explorer.problem.objective.goal:
        case Goal.MINIMIZE_GPUS:
            return fewest_gpus(explorer, floor)
        case Goal.MINIMIZE_MEMORY:
            return least_memory(explorer, floor)
        case Goal.MINIMIZE_COST:
            return least_cost(explorer, floor)
        case Goal.MAXIMIZE_THROUGHPUT:
            return most_throughput(explorer, floor)


def fewest_gpus(explorer: Explorer, floor: Floor) -> Choice | None:
    """Go up from one GPU to the first count that fits."""
    decided: dict[int, list[Decision]] = {}
    for count in explorer.by_count:
        decided[count] = explorer.decide(count, floor)
        if is_fitting(decided[count]):
            fits = [
                decision.found
                for decision in decided[count]
                if decision.verdict is Verdict.FITS and decision.found is not None
            ]
            return Choice(
                found=slimmest_of(explorer, fits, floor.expected(count)),
                decided=decided,
            )
    return None


def slimmest_of(explorer: Explorer, fits: list[Found], needed_per_s: float) -> Found:
    """Return the least peak of those tuples within the tolerance of the best rate."""
    best_rate = max(map(explorer.rate, fits))
    tolerance = explorer.problem.objective.throughput_tolerance
    needed = max(needed_per_s, (1 - tolerance) * best_rate)
    slim: list[Found] = []
    least: int | None = None
    for found in sorted(fits, key=lambda found: corner_peak(explorer, found.candidate)):
        if least is not None and corner_peak(explorer, found.candidate) > least:
            break
        if explorer.rate(found) < needed:
            continue
        slim.append(explorer.slimmest(found, needed))
        least = min(explorer.device_peak(plan) for plan in slim)
    chosen = min(slim, key=lambda plan: slimness(explorer, plan))
    return explorer.polished(chosen, needed)


def corner_peak(explorer: Explorer, candidate: Candidate) -> int:
    """Return the least upper bound on any device at any speed."""
    corner = explorer.search.corner(candidate, Bound.UPPER)
    return explorer.search.allowance(candidate).device(Bound.UPPER, corner)


def slimness(explorer: Explorer, plan: Found) -> tuple[float, ...]:
    """Order plans of several tuples: peak, speed, price, stages, micro-batch, offer."""
    candidate = plan.candidate
    return (
        explorer.device_peak(plan),
        plan.step_s,
        explorer.price_per_hour(candidate),
        candidate.num_stages,
        candidate.micro_batch,
        candidate.offer,
    )


def least_memory(explorer: Explorer, floor: Floor) -> Choice | None:
    """Search tuples in the order of their least peak at any speed."""
    best: Found | None = None
    least_open: int | None = None
    for candidate in sorted(
        explorer.fitting,
        key=lambda c: (
            corner_peak(explorer, c),
            c.num_gpus,
            explorer.price_per_hour(c),
        ),
    ):
        least = corner_peak(explorer, candidate)
        if best is not None and least >= explorer.device_peak(best):
            break
        needed = floor.expected(candidate.num_gpus)
        if explorer.quick_rate(candidate) < needed:
            continue
        found = explorer.search.fastest(candidate)
        if found is None or explorer.rate(found) < needed:
            continue
        slim = explorer.slimmest(found, needed)
        least_open = least if least_open is None else min(least_open, least)
        if best is None or explorer.device_peak(slim) < explorer.device_peak(best):
            best = slim
    if best is None or least_open is None:
        return None
    polished = explorer.polished(best, floor.expected(best.candidate.num_gpus))
    peak = explorer.device_peak(polished)
    return Choice(found=polished, gap=1 - min(least_open, peak) / peak if peak else 0.0)


def least_cost(explorer: Explorer, floor: Floor) -> Choice | None:
    """Branch and bound on the price of the training."""

    def cost(candidate: Candidate, step_s: float) -> float:
        steps = explorer.problem.num_steps or 1
        return explorer.price_per_hour(candidate) * steps * step_s / S_PER_HOUR

    def score(candidate: Candidate, step_s: float) -> float:
        slow = samples_per_s(explorer.search, step_s) < floor.total
        return float("-inf") if slow else -cost(candidate, step_s)

    best = explorer.best(explorer.fitting, score)
    if best is None:
        return None
    open_costs = [
        cost(found.candidate, found.bound_s)
        for found in explorer.search.fastest_of.values()
    ]
    reached = cost(best.candidate, best.step_s)
    gap = 1 - min(*open_costs, reached) / reached if reached else 0.0
    return Choice(found=explorer.polished(best, explorer.rate(best)), gap=gap)


def most_throughput(explorer: Explorer, floor: Floor) -> Choice | None:
    """Branch and bound on samples per second."""
    best = explorer.best_rate(explorer.fitting, floor.total)
    if best is None:
        return None
    least_s = min(found.bound_s for found in explorer.search.fastest_of.values())
    gap = 1 - min(least_s, best.step_s) / best.step_s if best.step_s else 0.0
    return Choice(found=explorer.polished(best, explorer.rate(best)), gap=gap)
