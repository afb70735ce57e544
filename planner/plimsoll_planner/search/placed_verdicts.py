"""Verdicts on counts of devices whose operators are placed, and why none fits.

In: a problem and the `PlacedTuple`s of each count. Out: the certificate, or
`Infeasible`. Called by `placed_answer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plimsoll_planner import schedules, techniques
from plimsoll_planner.memory.bounds import Bound
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
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, SearchStatistics
from plimsoll_planner.records.space import Space
from plimsoll_planner.search.placed_numbers import (
    most_rate_of,
    peak_of,
    rate_of,
    rule_of,
)
from plimsoll_planner.search.placed_tuples import PlacedTuple, most_placed
from plimsoll_planner.text.counts import gpus_text
from plimsoll_planner.units import at_least

BINDING_OF = {
    Rule.RATE_BOUND: Binding.RATE,
    Rule.PLACEMENT_BOUND: Binding.MEMORY,
    Rule.POD_SHAPE: Binding.GPU_LIMIT,
    Rule.BATCH_DOES_NOT_DIVIDE: Binding.BATCH,
    Rule.OUTSIDE_LIMITS: Binding.GPU_LIMIT,
}
"""Reason of a count all of whose tuples fail: the first of these that occurs."""
RATE_VERDICTS = {
    Rule.RATE_BOUND: Verdict.FAILS,
    Rule.NOT_PLACED: Verdict.UNDECIDED,
}
"""Of what fits, and was not found to be as fast as asked."""


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
            without=(
                *map(without_reason, techniques.absent(problem)),
                *schedules.absent(),
            ),
            override=problem.override,
            needed_override=problem.needed_override,
            least_micro_batch=problem.profile.graphs[0].micro_batch,
            micro_batches=tuple(one.micro_batch for one in problem.profile.graphs),
        ),
        counts=verdicts,
        fewest_at_any_speed=next(fitting, None),
        cut_off=cut_off_text(problem, counts),
    )


def without_reason(technique: str) -> str:
    """Name of a technique: all are absent as layers have them, and operators do not."""
    return technique.partition(" (")[0]


def cut_off_text(problem: Problem, counts: dict[int, list[PlacedTuple]]) -> str:
    """Number of tuples that were not looked at, and the limit; empty: none."""
    rules = [one.rule for each in counts.values() for one in each]
    left_out = rules.count(Rule.NOT_SEARCHED)
    if not left_out:
        return ""
    limit = problem.limits.max_tuples
    return f"{left_out} of {len(rules)} combinations: `limits.max_tuples` is {limit}"


def count_verdict(
    problem: Problem, count: int, found: Sequence[PlacedTuple]
) -> CountVerdict:
    """Verdict on one count."""
    least = problem.asked_samples_per_s
    rules = [rule_of(problem, one) for one in found]
    verdicts = [
        one.verdict if rule is one.rule else RATE_VERDICTS[rule]
        for rule, one in zip(rules, found, strict=True)
    ]
    binding = binding_of(rules) if set(verdicts) == {Verdict.FAILS} else None
    return CountVerdict(
        num_gpus=count,
        binding=binding,
        nearest_miss=miss_of(problem, found, binding),
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


def binding_of(rules: Sequence[Rule]) -> Binding:
    """Reason where all tuples fail; see `BINDING_OF`."""
    return next(bound for rule, bound in BINDING_OF.items() if rule in rules)


def miss_of(
    problem: Problem, found: Sequence[PlacedTuple], binding: Binding | None
) -> NearestMiss | None:
    """The tuple that fails by the least, where memory or a rate binds."""
    if binding is Binding.MEMORY:
        return memory_miss(found)
    if binding is not Binding.RATE:
        return None
    slow = [one for one in found if rule_of(problem, one) is Rule.RATE_BOUND]
    return NearestMiss(
        binding=Binding.RATE,
        samples_per_s=max(most_rate_of(one, is_sure=True) for one in slow),
        needed_samples_per_s=problem.asked_samples_per_s,
    )


def memory_miss(found: Sequence[PlacedTuple]) -> NearestMiss:
    """The tuple whose bound is the smallest part of its capacity."""

    def part(one: PlacedTuple) -> float:
        return one.least_bytes / max(one.allowed.capacity_bytes, 1)

    missed = [one for one in found if one.rule is Rule.PLACEMENT_BOUND]
    nearest = min(missed, key=part)
    return NearestMiss(
        binding=Binding.MEMORY,
        offer=nearest.offer,
        operator=too_large(nearest),
        needed_bytes=nearest.least_bytes,
        capacity_bytes=max(nearest.allowed.capacity_bytes, 0),
    )


def too_large(one: PlacedTuple) -> str | None:
    """Operator that surely exceeds a device, whatever else stands there."""
    if one.placement is None:
        return None
    bounds = one.placement.bounds
    capacity_bytes = one.allowed.tensor_capacity(Bound.LOWER)
    if bounds.group_bytes > capacity_bytes:
        return bounds.largest_group
    return bounds.largest_node if bounds.node_bytes > capacity_bytes else None


def infeasible(
    problem: Problem,
    counts: dict[int, list[PlacedTuple]],
    certificate: Certificate,
    statistics: SearchStatistics,
    warnings: tuple[str, ...],
) -> Infeasible:
    """Why there is no placement, as far as that is known."""
    found = [one for each in counts.values() for one in each]
    binding, change = Binding.MEMORY, "more devices, or an engine that places layers"
    fitting = [one for one in found if one.verdict is Verdict.FITS]
    placed = [one for one in found if one.placement is not None]
    misses = [one.nearest_miss for one in certificate.counts if one.nearest_miss]
    if fitting:
        binding, fastest = Binding.RATE, max(fitting, key=rate_of)
        change = (
            f"{rate_of(fastest):.4g} samples/s, the most that was found, on "
            f"{gpus_text(fastest.mesh.num_gpus, problem.offers)}; or more of them"
        )
    elif placed:
        least = min(placed, key=peak_of)
        change = (
            f"{gpus_text(least.mesh.num_gpus, problem.offers)} of "
            f"{at_least(peak_of(least))}: the least that was found, at a micro-batch "
            f"of {least.micro_batch}"
        )
        beside_bytes = least.allowed.device(Bound.UPPER, 0)
        if beside_bytes >= least.allowed.capacity_bytes:
            change += f", {at_least(beside_bytes)} of it beside tensors at the most"
        elif not (misses and all(miss.operator for miss in misses)):
            change += "; or more of them"
    elif any(one.rule is Rule.NOT_PLACED for one in found):
        tried = {one.micro_batch for one in found}
        graphs = (g for g in problem.profile.graphs if g.micro_batch in tried)
        most = max(most_placed(one.graph) for one in graphs)
        binding, change = Binding.GPU_LIMIT, f"at most {most} devices in a replica"
    else:
        binding = binding_of([one.rule for one in found])
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
        warnings=warnings,
    )
