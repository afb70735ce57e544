"""The tuples that the search looks at, and what decides some of them at sight.

In: a problem. Out: `Candidate`s, in a fixed order. Called by the search.

For each count G, offer and P that divides G (P <= L, degrees within the limits), with
D = G / P: where D does not divide the global batch, one tuple with b = 1, which fails;
else one tuple for each b with D * b dividing it, within the limits and not below what
was profiled. M is what remains.
A count that the limits leave nothing of has one tuple, P = G, that fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.timing.topology import largest_pod


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One tuple of the space."""

    offer: int
    """Which offer of the problem."""
    num_stages: int
    """P."""
    data_degree: int
    """D."""
    micro_batch: int
    """b."""
    num_micro_batches: int
    """M; 0 where the batch does not divide."""
    gpus_per_pod: int
    rule: Rule | None = None
    """What decides it at sight: it fails."""

    @property
    def num_gpus(self) -> int:
        """G."""
        return self.num_stages * self.data_degree


def candidates(problem: Problem, num_layers: int, num_gpus: int) -> list[Candidate]:
    """Return all tuples of one count, in order of P, b and offer."""
    found = [
        candidate
        for num_stages in divisors(num_gpus)
        if is_within_limits(problem, num_layers, num_stages, num_gpus // num_stages)
        for candidate in of_mesh(problem, num_stages, num_gpus // num_stages)
    ]
    if found:
        return found
    offer = problem.offers[0]
    return [
        Candidate(
            offer=0,
            num_stages=num_gpus,
            data_degree=1,
            micro_batch=1,
            num_micro_batches=0,
            gpus_per_pod=largest_pod(num_gpus, offer.devices_per_node),
            rule=Rule.OUTSIDE_LIMITS,
        )
    ]


def divisors(number: int) -> list[int]:
    """Return the divisors in order."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def is_within_limits(
    problem: Problem, num_layers: int, num_stages: int, data_degree: int
) -> bool:
    """Tell whether a mesh is in the space."""
    limits, fixed = problem.limits, problem.override
    fixed_stages = len(fixed.cuts) or fixed.num_stages
    allowed = (
        (limits.pipeline_degrees, num_stages),
        (limits.data_degrees, data_degree),
        ((fixed_stages,) if fixed_stages else (), num_stages),
        ((fixed.data_degree,) if fixed.data_degree else (), data_degree),
        ((fixed.num_gpus,) if fixed.num_gpus else (), num_stages * data_degree),
    )
    return num_stages <= num_layers and all(
        not degrees or found in degrees for degrees, found in allowed
    )


def of_mesh(problem: Problem, num_stages: int, data_degree: int) -> Iterator[Candidate]:
    """Yield the tuples of one mesh."""
    batch = problem.global_batch_size
    for micro_batch in micro_batches(problem, data_degree):
        for place, offer in enumerate(problem.offers):
            num_micro_batches = batch // (data_degree * micro_batch)
            divides = data_degree * micro_batch * num_micro_batches == batch
            candidate = Candidate(
                offer=place,
                num_stages=num_stages,
                data_degree=data_degree,
                micro_batch=micro_batch,
                num_micro_batches=num_micro_batches if divides else 0,
                gpus_per_pod=largest_pod(
                    num_stages * data_degree, offer.devices_per_node
                ),
                rule=None if divides else Rule.BATCH_DOES_NOT_DIVIDE,
            )
            yield candidate if candidate.rule else ruled(problem, offer, candidate)


def micro_batches(problem: Problem, data_degree: int) -> list[int]:
    """Return the values of b that one data degree has rows for."""
    batch, fixed = problem.global_batch_size, problem.override.micro_batch
    if batch % data_degree:
        return [fixed or 1]
    if fixed:
        return [fixed]
    least = problem.profile.least_micro_batch
    most = problem.limits.max_micro_batch or batch
    return [b for b in divisors(batch // data_degree) if least <= b <= most]


def ruled(problem: Problem, offer: Offer, candidate: Candidate) -> Candidate:
    """Return the tuple with the rule that decides it at sight, if one does."""
    rule = None
    can = problem.engine.can
    too_few = candidate.num_micro_batches < candidate.num_stages
    if too_few and not can.fewer_micro_batches_than_stages:
        rule = Rule.ENGINE_CANNOT_RUN
    elif offer.nodes_available is not None:
        pods_per_node = offer.devices_per_node // candidate.gpus_per_pod
        pods = candidate.num_gpus // candidate.gpus_per_pod
        if -(-pods // pods_per_node) > offer.nodes_available:
            rule = Rule.POD_SHAPE
    if rule is None:
        return candidate
    return Candidate(
        offer=candidate.offer,
        num_stages=candidate.num_stages,
        data_degree=candidate.data_degree,
        micro_batch=candidate.micro_batch,
        num_micro_batches=candidate.num_micro_batches,
        gpus_per_pod=candidate.gpus_per_pod,
        rule=rule,
    )
