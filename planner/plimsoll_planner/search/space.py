"""The tuples that the search looks at, and the rules that decide some at sight.

In: a problem. Out: `Candidate`s, in a fixed order. Called by the search.

For each count G and each strategy (mesh and schedule within the limits, P <= L) of it:
if D does not divide the global batch, one tuple with b = 1, which fails; else one tuple
for each offer and each b with D * b dividing the batch, within the limits and not below
what was profiled. M is what remains.
A count that the limits leave nothing of has one tuple, P = G, that fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Mesh, Strategy, divisors, meshes_of
from plimsoll_planner.schedules import SCHEDULES
from plimsoll_planner.timing.schedule import PipelineSchedule
from plimsoll_planner.timing.topology import largest_pod


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One tuple of the space."""

    offer: int
    """Place among the offers of the problem."""
    strategy: Strategy
    micro_batch: int
    """b."""
    num_micro_batches: int
    """M; 0 if the batch does not divide."""
    gpus_per_pod: int
    rule: Rule | None = None
    """Decides it at sight: it fails."""

    @property
    def mesh(self) -> Mesh:
        """Degrees."""
        return self.strategy.mesh

    @property
    def schedule(self) -> PipelineSchedule:
        """Order of passes."""
        return SCHEDULES[self.strategy.schedule]

    @property
    def num_stages(self) -> int:
        """P."""
        return self.strategy.mesh.pipeline

    @property
    def num_gpus(self) -> int:
        """G."""
        return self.strategy.mesh.num_gpus


def candidates(problem: Problem, num_layers: int, num_gpus: int) -> list[Candidate]:
    """All tuples of one count, in order of P, b and offer."""
    found = [
        candidate
        for strategy in strategies(problem, num_layers, num_gpus)
        for candidate in of_strategy(problem, strategy)
    ]
    if found:
        return found
    offer = problem.offers[0]
    return [
        Candidate(
            offer=0,
            strategy=Strategy(mesh=Mesh(pipeline=num_gpus)),
            micro_batch=1,
            num_micro_batches=0,
            gpus_per_pod=largest_pod(num_gpus, offer.devices_per_node),
            rule=Rule.OUTSIDE_LIMITS,
        )
    ]


def strategies(problem: Problem, num_layers: int, num_gpus: int) -> Iterator[Strategy]:
    """Strategies of one count that the limits, the engine and an override leave."""
    limits, fixed = problem.limits, problem.override
    if fixed.num_gpus not in {None, num_gpus}:
        return
    fixed_stages = len(fixed.cuts) or fixed.num_stages
    for mesh in meshes_of(num_gpus):
        if (
            mesh.pipeline <= num_layers
            and mesh.is_within(limits.pipeline_degrees, limits.data_degrees)
            and mesh.is_within(chosen(fixed_stages), chosen(fixed.data_degree))
        ):
            for schedule in limits.schedules:
                if schedule in problem.engine.can.schedules:
                    yield Strategy(mesh=mesh, schedule=schedule)


def chosen(degree: int | None) -> tuple[int, ...]:
    """Degrees that an override allows; empty for all."""
    return (degree,) if degree else ()


def of_strategy(problem: Problem, strategy: Strategy) -> Iterator[Candidate]:
    """Tuples of one strategy."""
    batch, mesh = problem.global_batch_size, strategy.mesh
    for micro_batch in micro_batches(problem, mesh.data):
        num_micro_batches = batch // (mesh.data * micro_batch)
        divides = mesh.data * micro_batch * num_micro_batches == batch
        for place, offer in enumerate(problem.offers):
            candidate = Candidate(
                offer=place,
                strategy=strategy,
                micro_batch=micro_batch,
                num_micro_batches=num_micro_batches if divides else 0,
                gpus_per_pod=largest_pod(mesh.num_gpus, offer.devices_per_node),
            )
            rule = rule_at_sight(problem, offer, candidate)
            yield replace(candidate, rule=rule) if rule else candidate


def micro_batches(problem: Problem, data_degree: int) -> list[int]:
    """Values of b that one data degree has rows for."""
    batch, fixed = problem.global_batch_size, problem.override.micro_batch
    if batch % data_degree:
        return [fixed or 1]
    if fixed:
        return [fixed]
    least = problem.profile.least_micro_batch
    most = problem.limits.max_micro_batch or batch
    return [b for b in divisors(batch // data_degree) if least <= b <= most]


def rule_at_sight(problem: Problem, offer: Offer, candidate: Candidate) -> Rule | None:
    """Rule that decides a tuple at sight, if one does."""
    if candidate.num_micro_batches == 0:
        return Rule.BATCH_DOES_NOT_DIVIDE
    if candidate.schedule.is_refused(
        candidate.num_stages, candidate.num_micro_batches, problem.engine.can
    ):
        return Rule.ENGINE_CANNOT_RUN
    if offer.nodes_available is not None:
        pods_per_node = offer.devices_per_node // candidate.gpus_per_pod
        pods = candidate.num_gpus // candidate.gpus_per_pod
        if -(-pods // pods_per_node) > offer.nodes_available:
            return Rule.POD_SHAPE
    return None
