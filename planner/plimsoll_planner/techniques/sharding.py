"""State that replicas divide: levels of a stage, as ZeRO has them.

none          each replica has all of it
optimizer     optimizer state                          `divided_state`
gradients     and gradients                            `sharded_layers`
parameters    and parameters                           `sharded_layers`
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import ClassVar

import numpy as np

from plimsoll_planner.memory.chain_bytes import ChainBytes
from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.techniques import state_on_host
from plimsoll_planner.techniques.divided_state import DividedOptimizer
from plimsoll_planner.techniques.sharded_layers import LayersAtWork, ShardedLayers
from plimsoll_planner.techniques.technique import Chains, Choice, Technique

LEVELS = (Sharding.OPTIMIZER, Sharding.GRADIENTS, Sharding.PARAMETERS)
"""In the order of what a rank holds, the most first."""


def left_out(problem: Problem, level: Sharding) -> str:
    """Why stages of a problem are not offered a level; empty if they are."""
    can, fixed = problem.engine.can, problem.override.sharding
    if level not in problem.limits.shardings:
        return "the limits leave it out"
    if fixed not in (None, level):
        return f"`override.sharding` is {fixed}"
    if level not in {*can.shardings} & {*can.shardings_with_pipeline}:
        return f"{problem.engine.engine} cannot run it"
    if problem.profile.recipe.elementwise is False:
        return f"{problem.profile.recipe.optimizer} mixes numbers of a tensor"
    if problem.profile.costs.divided is None:
        return "the profile is of before it was asked, profile again"
    return ""


class ShardedOptimizer(Technique):
    """See the module's text."""

    name: ClassVar[str] = "sharded optimizer"

    def unavailable(self, problem: Problem) -> str:
        """See the base."""
        return left_out(problem, Sharding.OPTIMIZER)

    def missing(self, problem: Problem) -> str:
        """See the base."""
        fixed = problem.override.sharding
        demanded = [fixed] if fixed else [*problem.limits.shardings]
        reasons = [left_out(problem, level) for level in LEVELS if level in demanded]
        if Sharding.NONE not in demanded and all(reasons):
            return f"sharding {demanded[0]} is asked for, but {reasons[0]}"
        return ""

    def falls_with_replicas(self, problem: Problem) -> bool:
        """See the base."""
        return not all(left_out(problem, level) for level in LEVELS)

    def choices(
        self, strategy: Strategy, problem: Problem, chains: Chains
    ) -> Iterable[Choice]:
        """Every level that there is.

        Whole state is left out where divided state is nowhere worse. Sharded in place
        it takes no longer: half of an all-reduce of parameters is no more than half of
        one of gradients, and the step is one of a part. Where the state may be on the
        host, a device that has none of it still has the padding.
        """
        degree = strategy.mesh.data
        levels = [one for one in LEVELS if not left_out(problem, one)]
        if degree == 1 or not levels:
            return [Choice()]
        found: list[Choice] = [level_of(problem, one, degree) for one in levels]
        fixed, allowed = problem.override.sharding, problem.limits.shardings
        if fixed not in (None, Sharding.NONE) or Sharding.NONE not in allowed:
            return found
        homes = state_on_host.TECHNIQUE.choices(strategy, problem, chains)
        divided = found[0]
        if (
            levels[0] is Sharding.OPTIMIZER
            and is_in_place(problem)
            and all(
                is_no_more(home.bytes(divided.bytes(chain)), home.bytes(chain))
                for home, chain in product(homes, chains)
            )
        ):
            return found
        return [Choice(), *found]

    def choice_of(self, stage: Stage, problem: Problem) -> Choice:
        """See the base."""
        if stage.sharding is Sharding.NONE:
            return Choice()
        return level_of(problem, stage.sharding, stage.data_degree)


def is_in_place(problem: Problem) -> bool:
    """Whether replicas exchange slices in place, as an engine does on its devices."""
    return problem.profile.device_kind is DeviceKind.CUDA


def level_of(problem: Problem, level: Sharding, data_degree: int) -> DividedOptimizer:
    """Choice of a level."""
    in_place = is_in_place(problem)
    if level is Sharding.OPTIMIZER:
        return DividedOptimizer(data_degree, in_place=in_place)
    work = LayersAtWork(level, most=problem.limits.max_gpus)
    return ShardedLayers(data_degree, in_place=in_place, work=work)


def is_no_more(one: ChainBytes, other: ChainBytes) -> bool:
    """Whether no run of layers holds more in one chain than in another, nor on hosts.

    From a run with n layers of a tie, n - 1 copies are taken off, at most one for each.
    """
    state, host = np.zeros((2, one.num_layers), dtype=np.int64)
    for mine, theirs in zip(one.ties, other.ties, strict=True):
        state[mine.members] += max(theirs.state - mine.state, 0)
        host[mine.members] += max(theirs.host - mine.host, 0)
    return bool(
        (one.state + state <= other.state).all()
        and (one.host + host <= other.host).all()
        and (one.optimizer_transient <= other.optimizer_transient).all()
    )


TECHNIQUE = ShardedOptimizer()
