"""Chooses a plan by the goal of the problem.

In: the tuples of a problem and the rate floor. Out: `Chosen`, None where no plan fits
and is fast enough. Called by `answer`.

    MinimizeGPUs         fewest GPUs with a plan at the floor, of whole nodes where the
                         limits say so; there, the least peak of those within the
                         tolerance of the best rate
    MinimizeMemory       least peak on any device at the floor, then fewer GPUs
    MinimizeCost         least price of whole nodes times hours of the whole training
    MaximizeThroughput   most samples per second, then fewer GPUs

Among equals the cheaper nodes are chosen.

The last two have no relative floor: neither is degenerate without one. Their plans are
compared by walked steps; `gap` says what the step bounds leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.search.explore import Explorer, is_fitting
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.gaps import gap_below
from plimsoll_planner.search.space import Candidate, Family
from plimsoll_planner.search.verdicts import Decision, Floor, samples_per_s
from plimsoll_planner.units import S_PER_HOUR

TIE = 1e-6
"""Relative; rates as close as this are ties, for seconds are rounded to ticks."""


def no_counts() -> dict[int, list[Decision]]:
    """Empty mapping."""
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The plan, and how far it may be from the best in the goal's own measure."""

    found: Found
    gap: float = 0.0
    memory_gap: float = 0.0
    """Of the peak: how much less a plan as fast may need."""
    rate_gap: float = 0.0
    """Of the best rate of the count: how far it may be above the best that was found.
    """
    decided: Mapping[int, list[Decision]] = field(default_factory=no_counts)
    """Counts that were judged on the way."""


def choose(explorer: Explorer, floor: Floor) -> Chosen | None:
    """Plan that the goal asks for."""
    match explorer.problem.objective.goal:
        case Goal.MINIMIZE_GPUS:
            return fewest_gpus(explorer, floor)
        case Goal.MINIMIZE_MEMORY:
            return least_memory(explorer, floor)
        case Goal.MINIMIZE_COST:
            return least_cost(explorer, floor)
        case Goal.MAXIMIZE_THROUGHPUT:
            return most_throughput(explorer, floor)


def fewest_gpus(explorer: Explorer, floor: Floor) -> Chosen | None:
    """Go up from one GPU to the first count that fits."""
    if explorer.problem.limits.whole_nodes:
        return fewest_paid(explorer, floor)
    decided: dict[int, list[Decision]] = {}
    for count in explorer.families:
        decided[count] = explorer.decide(count, floor)
        if is_fitting(decided[count]):
            return replace(
                least_memory_near_best(explorer, decided[count], floor.expected(count)),
                decided=decided,
            )
    return None


def fewest_paid(explorer: Explorer, floor: Floor) -> Chosen | None:
    """Find the fewest devices of whole nodes, then the fewest of them in use.

    Pods are equal, so more GPUs may stand on fewer nodes. A count never pays for fewer
    than itself: from the least that is paid for on, no count is better.
    """
    decided: dict[int, list[Decision]] = {}
    least: list[Decision] = []
    paid = 0
    for count in explorer.families:
        if least and count >= paid:
            break
        decided[count] = explorer.decide(count, floor)
        for decision in decided[count]:
            mine = explorer.paid_gpus(decision.candidate)
            if decision.verdict is not Verdict.FITS:
                continue
            if not least or mine < paid:
                least, paid = [], mine
            if mine == paid and (not least or least[0].candidate.num_gpus == count):
                least.append(decision)
    if not least:
        return None
    needed = floor.expected(least[0].candidate.num_gpus)
    return replace(least_memory_near_best(explorer, least, needed), decided=decided)


def least_memory_near_best(
    explorer: Explorer, decisions: list[Decision], needed_per_s: float
) -> Chosen:
    """Least peak of the plans of a count that are nearly as fast as its fastest.

    At least `needed_per_s` samples per second are needed in any case. One of the tuples
    fits.
    """
    walked = [decision.found for decision in decisions if decision.found is not None]
    fastest = min(walked, key=lambda found: found.step_s)
    tuples = [decision.candidate for decision in decisions]
    choice = least_memory_near(explorer, tuples, fastest, needed_per_s)
    rate_gap = gap_below(explorer, tuples, fastest.step_s, lambda _, step_s: step_s)
    return replace(choice, rate_gap=rate_gap)


def least_memory_near(
    explorer: Explorer,
    tuples: Sequence[Candidate],
    fastest: Found,
    needed_per_s: float,
) -> Chosen:
    """Least peak of the plans of some tuples that are nearly as fast as `fastest`.

    That is the fastest plan of them, and makes `needed_per_s` samples per second.
    """
    tolerance = explorer.problem.objective.throughput_tolerance
    needed = max(needed_per_s, (1 - tolerance) * explorer.rate(fastest) * (1 - TIE))
    choice = least_memory_of(explorer, tuples, lambda _: needed)
    if choice is None:
        raise AssertionError("the plan of the best rate is fast enough")
    return choice


def least_memory_of(
    explorer: Explorer,
    tuples: Sequence[Candidate],
    needed_per_s: Callable[[int], float],
) -> Chosen | None:
    """Least peak of all plans of some tuples that are fast enough for their count.

    Tuples are tried in the order of their least peak at any speed, until that is no
    lower than the peak of the best plan.
    """
    fitting = explorer.cheapest(
        c for c in tuples if c.rule is None and explorer.search.fits(c)
    )
    best: Found | None = None
    least_bytes: list[int] = []
    for candidate in sorted(
        fitting, key=lambda c: (least_device_peak(explorer, c), c.num_gpus)
    ):
        peak = least_device_peak(explorer, candidate)
        if best is not None and (peak, candidate.num_gpus) > (
            explorer.device_peak(best),
            best.candidate.num_gpus,
        ):
            break
        target_s = explorer.target_s(needed_per_s(candidate.num_gpus))
        found = explorer.fastest_within(candidate, target_s)
        if found is None:
            continue
        if found.step_s > target_s:
            # Too slow, but for all that is known another plan may not be.
            least_bytes.append(peak)
            continue
        least = explorer.search.least_memory(found, target_s)
        least_bytes.append(explorer.device_bytes(candidate, least.least_bytes))
        plans = [least.found] if best is None else [best, least.found]
        best = min(plans, key=lambda plan: preference(explorer, plan))
    if best is None:
        return None
    peak = explorer.device_peak(best)
    if not explorer.search.tables.is_open:
        gap = 1 - min(*least_bytes, peak) / peak if peak else 0.0
        return Chosen(found=best, memory_gap=gap)

    def longest_s(num_gpus: int) -> float:
        return explorer.target_s(needed_per_s(num_gpus))

    return Chosen(found=best, memory_gap=open_gap(explorer, tuples, peak, longest_s))


def open_gap(
    explorer: Explorer,
    tuples: Iterable[Candidate],
    peak: int,
    target_s: Callable[[int], float],
) -> float:
    """Part of a peak that another plan may need less, also one that was left out.

    The step of a plan may take `target_s` of its number of GPUs.
    """

    def least_peak(candidate: Candidate, step_s: float) -> float:
        if step_s > target_s(candidate.num_gpus):
            return float("inf")
        return least_device_peak(explorer, candidate, merge=True)

    return gap_below(explorer, tuples, peak, least_peak)


def least_device_peak(
    explorer: Explorer, candidate: Candidate, *, merge: bool = False
) -> int:
    """Least upper bound on any device at any speed; see `Numbers.merge`."""
    least = explorer.search.least_peak(candidate, Bound.UPPER, merge=merge)
    return explorer.device_bytes(candidate, least)


def least_memory_tuple(
    explorer: Explorer, families: Iterable[Family]
) -> Candidate | None:
    """Tuple of the least peak at any speed, whether it fits or not, of fewest GPUs.

    Families are looked at in the order of their relaxed bounds, until that is above
    the least peak.
    """

    def bound_bytes(family: Family) -> int:
        one = family.first
        relaxed = explorer.search.family_bounds.relaxed(one, Bound.UPPER)
        return explorer.device_bytes(one, relaxed)

    best: Candidate | None = None
    best_key = (0, 0)
    runnable = [family for family in families if family.rule is None]
    for family in sorted(runnable, key=bound_bytes):
        if best is not None and bound_bytes(family) > best_key[0]:
            break
        for one in family.members():
            if explorer.search.least_peak(one, Bound.UPPER) >= LARGEST_BYTES:
                continue
            key = (least_device_peak(explorer, one), one.num_gpus)
            if best is None or key < best_key:
                best, best_key = one, key
    return best


def preference(explorer: Explorer, plan: Found) -> tuple[float, ...]:
    """Order of plans: peak, GPUs, speed, price, T, stages, micro-batch, offer."""
    candidate = plan.candidate
    return (
        explorer.device_peak(plan),
        candidate.num_gpus,
        plan.step_s,
        explorer.price_per_hour(candidate),
        candidate.mesh.tensor,
        candidate.num_stages,
        candidate.micro_batch,
        candidate.offer,
    )


def least_memory(explorer: Explorer, floor: Floor) -> Chosen | None:
    """Least peak of all counts, each of them at its own floor; then fewer GPUs."""
    choice = least_memory_of(explorer, explorer.open, floor.expected)
    return choice and replace(choice, gap=choice.memory_gap)


def least_cost(explorer: Explorer, floor: Floor) -> Chosen | None:
    """Branch and bound on the price of the training."""

    def cost(candidate: Candidate, step_s: float) -> float:
        steps = explorer.problem.num_steps or 1
        return explorer.price_per_hour(candidate) * steps * step_s / S_PER_HOUR

    def score(candidate: Candidate, step_s: float) -> float:
        slow = samples_per_s(explorer.search, step_s) < floor.total
        return float("-inf") if slow else -cost(candidate, step_s)

    best = explorer.best(explorer.open, score)
    if best is None:
        return None
    gap = gap_below(
        explorer,
        explorer.open,
        cost(best.candidate, best.step_s),
        lambda candidate, step_s: -score(candidate, step_s),
    )
    return Chosen(found=best, gap=gap)


def most_throughput(explorer: Explorer, floor: Floor) -> Chosen | None:
    """Branch and bound on samples per second."""
    best = explorer.best_rate(explorer.open, floor.total)
    if best is None:
        return None
    gap = gap_below(explorer, explorer.open, best.step_s, lambda _, step_s: step_s)
    return Chosen(found=best, gap=gap)
