"""Plans that people use, judged by the same model as ours.

In: a problem. Out: one `UsualRow` for each habit, on the fewest GPUs that it fits on,
and ours on as many and on the fewest. Called by `plimsoll compare`. A habit fixes
degrees, cuts, levels of sharding and what recomputes, whatever a person fixed of our
plans; the numbers that it leaves open (replicas, and the micro-batch if it is not
stated) are those of its fastest plan. Optimizers are on the device. T is the largest
degree that a node has and the profile knows.

    fsdp           P = 1, parameters divided over all GPUs, blocks recompute: torch's
                   `fully_shard` on each block
    fsdp-tp        the same with T ranks of a node for each layer: torchtitan 0.3.0,
                   `llama3_70b`
    torchtitan-3d  and the fewest stages above one: 1F1B, micro-batches of one sample,
                   one block fewer on the first and on the last stage, nothing let go
                   of between forward and backward: defaults of torchtitan 0.3.0
    megatron-3d    T in a node, then the fewest stages of as many blocks each, optimizer
                   state divided over replicas, micro-batches of one sample: Narayanan
                   et al., SC 2021, takeaways 1 and 2; full recompute is Megatron's

The first and the last layer of a chain stand for embedding and head; blocks are the
layers between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.chain_bytes import rows_of
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.verdicts import Floor

MOST_STAGES = 64
"""Stages of a usual plan; people use fewer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Habit:
    """One way in which people lay out a training."""

    name: str
    sharding: Sharding
    """Of the replicas."""
    is_split: bool
    """Whether the ranks of a node share each layer."""
    cuts: Callable[[int, int], tuple[int, ...] | None] = lambda _, stages: (
        (0,) if stages == 1 else None
    )
    """(L, P) -> first layer of each stage; None: nobody cuts so."""
    micro_batch: int | None = None
    """None: that of its fastest plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UsualRow:
    """A habit, or ours, on a number of GPUs."""

    name: str
    found: Found | None
    """Its plan; None if none fits within the limits."""
    peak_bytes: int = 0
    """Upper bound on the fullest device."""
    samples_per_s: float = 0.0
    price_per_hour: Decimal | None = None


def by_effective_layers(size: int, num_stages: int) -> tuple[int, ...] | None:
    """Cuts of torchtitan: embedding and head count as a block each; P > 1.

    What is left over goes to the first stages.
    """
    if not 1 < num_stages <= size:
        return None
    length, rest = divmod(size, num_stages)
    return tuple(s * length + min(s, rest) for s in range(num_stages))


def by_blocks(size: int, num_stages: int) -> tuple[int, ...] | None:
    """Cuts of Megatron: as many blocks on each stage."""
    blocks, rest = divmod(size - 2, num_stages)
    if rest or blocks < 1:
        return None
    return (0, *(1 + s * blocks for s in range(1, num_stages)))


HABITS = (
    Habit(name="fsdp", sharding=Sharding.PARAMETERS, is_split=False),
    Habit(name="fsdp-tp", sharding=Sharding.PARAMETERS, is_split=True),
    Habit(
        name="torchtitan-3d",
        sharding=Sharding.GRADIENTS,
        is_split=True,
        cuts=by_effective_layers,
        micro_batch=1,
    ),
    Habit(
        name="megatron-3d",
        sharding=Sharding.OPTIMIZER,
        is_split=True,
        cuts=by_blocks,
        micro_batch=1,
    ),
)


def usual_plans(problem: Problem) -> list[UsualRow]:
    """A row for each habit, and ours on as many GPUs as each of them takes."""
    rows = [row_of(problem, habit) for habit in HABITS]
    counts = {row.found.candidate.num_gpus for row in rows if row.found}
    explorer = Explorer(problem)
    below = min(counts, default=problem.limits.max_gpus + 1)
    smaller = (ours_on(explorer, count) for count in range(1, below))
    fewest = next((row for row in smaller if row.found), None)
    ours = [fewest, *(ours_on(explorer, count) for count in sorted(counts))]
    return [*rows, *(row for row in ours if row and row.found)]


def ours_on(explorer: Explorer, num_gpus: int) -> UsualRow:
    """Our fastest plan on so many GPUs."""
    if num_gpus not in explorer.families:
        return UsualRow(name="ours", found=None)
    tuples = (one for one in explorer.tuples_of(num_gpus) if one.rule is None)
    found = explorer.best_rate(one for one in tuples if explorer.search.fits(one))
    return judged("ours", explorer, found)


def row_of(problem: Problem, habit: Habit) -> UsualRow:
    """A habit on the fewest GPUs that it fits on, the fewest stages first."""
    explorers = list(explorers_of(problem, habit))
    for count in range(1, problem.limits.max_gpus + 1):
        for explorer in explorers:
            if count not in explorer.families:
                continue
            decisions = explorer.decide(count, Floor())
            fitting = [one.candidate for one in decisions if one.found is not None]
            if fitting:
                return judged(habit.name, explorer, explorer.best_rate(fitting))
    return UsualRow(name=habit.name, found=None)


def explorers_of(problem: Problem, habit: Habit) -> Iterator[Explorer]:
    """Yield the search of a habit's plans with each number of stages, rising."""
    size = len(problem.profile.layers.name)
    degree = widest(problem) if habit.is_split else 1
    needed = problem.needed_override
    limits = Limits(
        max_gpus=problem.limits.max_gpus,
        headroom=problem.limits.headroom,
        in_flight_caps=False,
    )
    for stages in range(1, min(MOST_STAGES, problem.limits.max_gpus // degree) + 1):
        cuts = habit.cuts(size, stages)
        if cuts is None or degree not in problem.possible_tensor_degrees:
            continue
        fixed = replace(
            needed,
            num_stages=stages,
            tensor_degree=degree,
            cuts=cuts,
            sharding=habit.sharding,
            optimizer_home=OptimizerHome.DEVICE,
            offloaded_layers=(),
            micro_batch=needed.micro_batch or habit.micro_batch,
            recomputed_layers=recomputed(problem),
        )
        try:
            yield Explorer(replace(problem, override=fixed, limits=limits))
        except CannotPlanError:
            continue


def widest(problem: Problem) -> int:
    """Largest tensor degree that some node has and the profile knows."""
    most = max(offer.devices_per_node for offer in problem.offers)
    return max(one for one in problem.possible_tensor_degrees if one <= most)


def recomputed(problem: Problem) -> tuple[int, ...]:
    """Blocks, as far as they may recompute."""
    can, rows = problem.profile.costs.recomputable, rows_of(problem.profile)
    blocks = range(1, len(rows) - 1)
    return tuple(layer for layer in blocks if can[rows[layer]])


def judged(name: str, explorer: Explorer, found: Found | None) -> UsualRow:
    """A plan with its figures."""
    if found is None:
        return UsualRow(name=name, found=None)
    return UsualRow(
        name=name,
        found=found,
        peak_bytes=explorer.device_peak(found),
        samples_per_s=explorer.rate(found),
        price_per_hour=explorer.search.price_per_hour(found.candidate),
    )
