"""Writes decisions down as a certificate, with the nearest miss of every count.

In: the decisions of counts 1, 2, .... Out: `Certificate`. Called by `answer`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

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
from plimsoll_planner.records.engine import OptimizerHome
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.space import Space
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.nearest_miss import host_miss, memory_miss
from plimsoll_planner.search.searched import searched_schedules
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.verdicts import Decision, Floor, is_zero_rate
from plimsoll_planner.text.explain import uncounted_text
from plimsoll_planner.timing.chain_seconds import is_host_measured

MEMORY_RULES = (
    *(Rule.STATES_EXCEED, Rule.LAYER_EXCEEDS, Rule.MEMORY_RELAXED),
    *(Rule.DOMINATED, Rule.PEAK_EXCEEDS),
)
BINDINGS = (
    (Binding.RATE, (Rule.RATE_BOUND,)),
    (Binding.HOST_MEMORY, (Rule.HOST_MEMORY,)),
    (Binding.MEMORY, MEMORY_RULES),
    (Binding.GPU_LIMIT, (Rule.POD_SHAPE,)),
    (Binding.TENSOR_GROUP, (Rule.TENSOR_GROUP,)),
    (Binding.ENGINE, (Rule.ENGINE_CANNOT_RUN,)),
    (Binding.BATCH, (Rule.BATCH_DOES_NOT_DIVIDE,)),
    (Binding.GPU_LIMIT, (Rule.OUTSIDE_LIMITS,)),
)
"""Reasons for which a count fails: the last hurdle that one of its tuples came to."""


def certificate_of(
    explorer: Explorer,
    decided: dict[int, list[Decision]],
    best: Found | None,
    floor: Floor,
) -> Certificate:
    """Certificate of counts 1 to the largest one decided."""
    problem = explorer.problem
    fewest, rate = any_speed(explorer, best)
    cut_off = explorer.num_cut_off
    return Certificate(
        space=Space(
            limits=replace(
                problem.limits,
                schedules=searched_schedules(problem),
                tensor_degrees=problem.tensor_degrees,
            ),
            offers=problem.offers,
            without=(*techniques.absent(problem), *schedules.absent()),
            override=problem.override,
            needed_override=problem.needed_override,
            least_micro_batch=problem.profile.least_micro_batch,
        ),
        counts=tuple(
            count_verdict(explorer, count, decisions, floor)
            for count, decisions in decided.items()
        ),
        fewest_at_any_speed=fewest,
        rate_at_any_speed=rate,
        cut_off=(
            f"{cut_off} of {explorer.num_tuples} combinations: `limits.max_tuples` is "
            f"{problem.limits.max_tuples}"
            if cut_off
            else ""
        ),
        pruned=pruned_text(explorer),
    )


def pruned_text(explorer: Explorer) -> str:
    """Which options were left out, and what that leaves open."""
    tables = explorer.search.tables
    found: list[str] = []
    if tables.is_grouped:
        length = len(explorer.problem.profile.layers.name)
        found.append(
            f"stages begin with {tables.num_layers} of {length} layers, which are the "
            "borders of groups"
        )
    if tables.num_pruned:
        num_runs = tables.num_layers * (tables.num_layers + 1) // 2
        found.append(
            f"of the sets of layers that may recompute, not all were compared in "
            f"{tables.num_pruned} of {num_runs} runs of layers"
        )
    if not found:
        return ""
    return "; ".join(found) + (
        ": what is said to fit or to fail does, but a faster plan or one of less "
        "memory may exist"
    )


def any_speed(
    explorer: Explorer, best: Found | None
) -> tuple[int | None, float | None]:
    """Fewest GPUs at any speed, and their part of the best rate."""
    fewest = explorer.fewest_at_any_speed
    if fewest is None or best is None:
        return None, None
    top = explorer.rate(best) / best.candidate.num_gpus
    plan = explorer.best_rate(c for c in explorer.open if c.num_gpus == fewest)
    if plan is None or top == 0:
        return fewest, None
    return fewest, min(explorer.rate(plan) / fewest / top, 1.0)


def count_verdict(
    explorer: Explorer, count: int, decisions: list[Decision], floor: Floor
) -> CountVerdict:
    """Verdict on one count."""
    binding = None
    if all(decision.verdict is Verdict.FAILS for decision in decisions):
        binding = binding_of({decision.rule for decision in decisions})
    return CountVerdict(
        num_gpus=count,
        binding=binding,
        nearest_miss=nearest_miss(explorer, decisions, binding, floor),
        num_undecided=sum(
            len(d.micro_batches) for d in decisions if d.verdict is Verdict.UNDECIDED
        ),
        floor_samples_per_s=floor.expected(count),
        decisions=columns(explorer, decisions),
    )


def binding_of(rules: set[Rule]) -> Binding:
    """Last hurdle that tuples which all fail came to."""
    return next(binding for binding, mine in BINDINGS if rules & set(mine))


def columns(explorer: Explorer, decisions: list[Decision]) -> Decisions:
    """Decisions as columns."""
    tuples: list[Candidate] = [decision.candidate for decision in decisions]
    flags = tuple(c.strategy.sequence_parallel for c in tuples)
    return Decisions(
        pipeline_degree=tuple(c.mesh.pipeline for c in tuples),
        tensor_degree=tuple(c.mesh.tensor for c in tuples),
        data_degree=tuple(c.mesh.data for c in tuples),
        micro_batch=tuple(c.micro_batch for c in tuples),
        largest_micro_batch=tuple(d.micro_batches[-1] for d in decisions),
        num_members=tuple(len(d.micro_batches) for d in decisions),
        sharding=tuple(explorer.search.sharding(one) for one in tuples),
        schedule=tuple(c.strategy.schedule for c in tuples),
        offer=tuple(c.offer for c in tuples),
        gpus_per_pod=tuple(c.gpus_per_pod for c in tuples),
        verdict=tuple(d.verdict for d in decisions),
        rule=tuple(d.rule for d in decisions),
        least_lower_bytes=tuple(d.least_lower_bytes for d in decisions),
        best_samples_per_s=tuple(d.best_samples_per_s for d in decisions),
        sequence_parallel=flags if any(flags) else None,
    )


def nearest_miss(
    explorer: Explorer,
    decisions: list[Decision],
    binding: Binding | None,
    floor: Floor,
) -> NearestMiss | None:
    """Miss that is smallest, for memory and rate."""
    if binding is Binding.MEMORY:
        missed = [d for d in decisions if d.rule in MEMORY_RULES]
        return memory_miss(explorer.search, nearest_by_memory(explorer, missed))
    if binding is Binding.HOST_MEMORY:
        missed = [d for d in decisions if d.rule is Rule.HOST_MEMORY]
        return min(
            (host_miss(explorer.search, d.candidate) for d in missed),
            key=lambda miss: miss.short_bytes,
        )
    if binding is not Binding.RATE:
        return None
    slow = [d for d in decisions if d.rule is Rule.RATE_BOUND]
    nearest = max(slow, key=lambda d: d.best_samples_per_s)
    needed = floor.provable(nearest.candidate.num_gpus)
    return NearestMiss(
        binding=Binding.RATE,
        offer=nearest.candidate.offer,
        samples_per_s=None if is_zero_rate(nearest) else nearest.best_samples_per_s,
        needed_samples_per_s=needed,
    )


def nearest_by_memory(explorer: Explorer, missed: list[Decision]) -> Candidate:
    """Tuple whose least lower peak is the smallest part of its capacity.

    Families and most tuples were decided by bounds. What seems nearest is bounded
    better, up to its exact peak, until the nearest is exact.
    """
    search = explorer.search

    def part(one: Candidate, tensor_bytes: int) -> float:
        allowed = search.allowance(one)
        needed = allowed.device(Bound.LOWER, tensor_bytes)
        return needed / max(allowed.capacity_bytes, 1)

    heap: list[tuple[float, tuple[int, int], bool, Candidate]] = []
    for place, decision in enumerate(missed):
        is_exact = decision.rule is Rule.PEAK_EXCEEDS
        for one in decision.members():
            bound = part(one, search.family_bounds.least(one, Bound.LOWER))
            if decision.family is None:
                allowed = search.allowance(one)
                bound = decision.least_lower_bytes / max(allowed.capacity_bytes, 1)
            heap.append((bound, (place, one.micro_batch), is_exact, one))
    heapq.heapify(heap)
    while True:
        bound, order, is_exact, one = heapq.heappop(heap)
        if is_exact:
            return one
        better = part(one, search.family_bounds.dominated(one))
        if better <= bound:
            is_exact = True
            better = part(one, search.least_peak(one, Bound.LOWER))
        heapq.heappush(heap, (better, order, is_exact, one))


def currencies_text(offers: Sequence[Offer]) -> str:
    """Which currencies are not compared; empty where there is one at most."""
    found = sorted({offer.currency for offer in offers if offer.currency})
    if len(found) < 2:  # noqa: PLR2004 - two differ
        return ""
    return (
        f"prices in {', '.join(found)} are not compared with one another: state all in "
        "one currency to have the cheapest machine chosen"
    )


def warnings_of(
    explorer: Explorer, candidate: Candidate, plan: Found | None = None
) -> tuple[str, ...]:
    """Warnings of an answer: assumptions that nobody measured."""
    problem = explorer.problem
    offer = problem.offers[candidate.offer]
    found: list[str] = []
    allowed = explorer.search.allowance(candidate)
    if allowed.is_assumed:
        found.append(
            f"what {offer.device_product} holds besides tensors was never measured "
            f"with torch {problem.profile.fingerprint.torch_version} at micro-batch "
            f"{candidate.micro_batch} on {candidate.mesh}: "
            f"{assumption_text(allowed)} is assumed, from "
            "public figures; the first run narrows it"
        )
    seconds = explorer.search.costs(candidate).seconds(
        candidate.offer, Bound.EXPECTED, candidate.micro_batch
    )
    if seconds.is_estimated:
        found.append(
            f"no measured seconds for {offer.device_product}: estimated from counted "
            "work and the offer's rates"
        )
        found += filter(None, [uncounted_text(problem.profile)])
    homes = [one.stated.get("optimizer_home") for one in plan.choices] if plan else []
    if OptimizerHome.HOST in homes and not is_host_measured(problem.profile, offer):
        found.append(
            "no measured seconds of an optimizer step on a host of "
            f"{offer.device_product}: estimated from the bytes that it reads and "
            "writes; profile on such a machine with --source measured to narrow it"
        )
    if layers := problem.profile.statistics_text:
        found.append(
            "statistics over the samples of a micro-batch decide what is trained in "
            f"{layers}: here over {candidate.micro_batch}, on each replica alone"
        )
    found += filter(None, [pruned_text(explorer), currencies_text(problem.offers)])
    if not problem.engine.verified:
        found.append(
            f"{problem.engine.engine} on {problem.engine.version} was not replayed "
            "against real ranks in tests: its bytes are those of the newest release "
            "that was, widened by 5 % on both sides; `python -m "
            "plimsoll_profiler.ranks.self_check` tries it where that torch is"
        )
    return (*found, *explorer.left_out)
