"""The tuples that the search covers, and the rules that decide some at once.

In: a problem. Out: families of `Candidate`s, in a fixed order. Called by the search.

For each count G and each strategy (mesh, schedule, and whether what lies between layers
is split as well, within the limits, P <= L) of it:
if D does not divide the global batch, one tuple with b = 1, which fails; else one tuple
for each offer and each b with D * b dividing the batch, within the limits and not below
what was profiled. M is what remains. Tuples that differ by b alone, and that the same
rule decides at sight, if any does, are a family.
A count that the limits leave nothing of has one tuple, P = G, that fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.model_profile import Variant
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Mesh, Strategy, divisors, meshes_of
from plimsoll_planner.schedules import SCHEDULES
from plimsoll_planner.search.searched import searched_schedules
from plimsoll_planner.search.variants import searched_variants
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Tuples that differ by their micro-batch alone."""

    first: Candidate
    """That of the smallest micro-batch."""
    micro_batches: tuple[int, ...]
    """b of all of them, rising."""

    @property
    def rule(self) -> Rule | None:
        """Decides all of them at sight: they fail."""
        return self.first.rule

    def members(self) -> Iterator[Candidate]:
        """Tuples."""
        one = self.first
        samples = one.num_micro_batches * one.micro_batch
        for b in self.micro_batches:
            yield replace(one, micro_batch=b, num_micro_batches=samples // b)

    def part(self, micro_batches: Iterable[int], rule: Rule | None) -> Family:
        """Family of some of the micro-batches, under another rule."""
        chosen = tuple(micro_batches)
        part = replace(self, micro_batches=chosen)
        return replace(part, first=replace(next(part.members()), rule=rule))


def members_of(families: Iterable[Family]) -> Iterator[Candidate]:
    """Tuples of some families, in order of strategy, b and offer."""
    for _, mine in groupby(families, key=lambda family: family.first.strategy):
        tuples = [one for family in mine for one in family.members()]
        yield from sorted(tuples, key=lambda one: (one.micro_batch, one.offer))


def families_of(
    problem: Problem,
    num_layers: int,
    num_gpus: int,
    variants: Sequence[Variant] | None = None,
) -> list[Family]:
    """All tuples of one count.

    `variants` are those of layers that are searched; None: looked up.
    """
    if variants is None:
        variants = searched_variants(problem)
    found = [
        family
        for strategy in strategies(problem, num_layers, num_gpus, variants)
        for family in of_strategy(problem, strategy)
    ]
    if found:
        return found
    none = Candidate(
        offer=0,
        strategy=Strategy(mesh=Mesh(pipeline=num_gpus)),
        micro_batch=1,
        num_micro_batches=0,
        gpus_per_pod=largest_pod(num_gpus, problem.offers[0].devices_per_node),
        rule=Rule.OUTSIDE_LIMITS,
    )
    return [Family(first=none, micro_batches=(1,))]


def strategies(
    problem: Problem, num_layers: int, num_gpus: int, variants: Sequence[Variant]
) -> Iterator[Strategy]:
    """Strategies of one count that the limits, the engine and an override leave."""
    limits, fixed = problem.limits, problem.override
    if fixed.num_gpus not in {None, num_gpus}:
        return
    fixed_stages = fixed.stages
    flags: dict[int, list[bool]] = defaultdict(list)
    for variant in variants:
        flags[variant.tensor_degree].append(variant.sequence_parallel)
    for mesh in meshes_of(num_gpus, list(flags)):
        if (
            mesh.pipeline <= num_layers
            and mesh.is_within(limits.pipeline_degrees, limits.data_degrees)
            and mesh.is_within(chosen(fixed_stages), chosen(fixed.data_degree))
        ):
            for schedule, flag in product(
                searched_schedules(problem), flags[mesh.tensor]
            ):
                yield Strategy(mesh=mesh, schedule=schedule, sequence_parallel=flag)


def chosen(degree: int | None) -> tuple[int, ...]:
    """Degrees that an override allows; empty for all."""
    return (degree,) if degree else ()


def of_strategy(problem: Problem, strategy: Strategy) -> Iterator[Family]:
    """Families of one strategy: of each offer one for each rule at sight, and none."""
    mesh = strategy.mesh
    of_replica, rest = divmod(problem.global_batch_size, mesh.data)
    counts = {
        b: 0 if rest or of_replica % b else of_replica // b
        for b in micro_batches(problem, mesh.data)
    }
    for place, offer in enumerate(problem.offers):
        pod = largest_pod(mesh.num_gpus, offer.devices_per_node, mesh.tensor)
        found: dict[Rule | None, list[int]] = defaultdict(list)
        for b, count in counts.items():
            found[rule_at_sight(problem, offer, strategy, count, pod)].append(b)
        for rule, mine in found.items():
            first = Candidate(
                offer=place,
                strategy=strategy,
                micro_batch=mine[0],
                num_micro_batches=counts[mine[0]],
                gpus_per_pod=pod,
                rule=rule,
            )
            yield Family(first=first, micro_batches=tuple(mine))


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


def rule_at_sight(
    problem: Problem,
    offer: Offer,
    strategy: Strategy,
    num_micro_batches: int,
    gpus_per_pod: int,
) -> Rule | None:
    """Rule that decides a tuple at sight, if one does."""
    mesh = strategy.mesh
    if num_micro_batches == 0:
        return Rule.BATCH_DOES_NOT_DIVIDE
    if mesh.tensor > offer.devices_per_node:
        return Rule.TENSOR_GROUP
    if SCHEDULES[strategy.schedule].is_refused(
        mesh.pipeline, num_micro_batches, problem.engine.can
    ):
        return Rule.ENGINE_CANNOT_RUN
    if offer.nodes_available is not None:
        pods_per_node = offer.devices_per_node // gpus_per_pod
        pods = mesh.num_gpus // gpus_per_pod
        if -(-pods // pods_per_node) > offer.nodes_available:
            return Rule.POD_SHAPE
    return None
