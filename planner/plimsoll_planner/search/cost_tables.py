"""Everything that the search computes once and reads often.

In: a problem. Out: tables of each variant of its layers, and what these have in common:
where stages may begin, micro-batches, room for options. Called by `tuple_context` and
what is built on it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.bounds import Bound, Ints
from plimsoll_planner.memory.chain_bytes import KEPT, chain_bytes
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.records.model_profile import Variant
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import divisors
from plimsoll_planner.search.grouping import group_starts
from plimsoll_planner.search.option_store import OptionStore
from plimsoll_planner.search.searched import require_searched
from plimsoll_planner.search.variant_tables import VariantTables
from plimsoll_planner.timing.chain_seconds import chain_seconds

Value = TypeVar("Value")
MOST_GROUPS = 256
"""Arrays over all runs of layers and recompute choices grow with the cube; a longer
chain is cut between groups of layers."""
MOST_LAYERS = 4096


class CostTables:
    """The tables of one problem."""

    def __init__(self, problem: Problem) -> None:
        """Check what the search cannot plan.

        Raises:
            CannotPlanError: too many layers, or more than is searched.
        """
        require_searched(problem)
        self.problem = problem
        length = len(problem.profile.layers.name)
        if length > MOST_LAYERS:
            raise CannotPlanError(
                f"the profile has {length} layers, up to {MOST_LAYERS} are "
                "planned: profile larger blocks as one layer"
            )
        if length > MOST_GROUPS and not problem.engine.can.uneven_stages:
            raise CannotPlanError(
                f"the profile has {length} layers, up to {MOST_GROUPS} are planned for "
                f"{problem.engine.engine}, which cuts equal stages: profile larger "
                "blocks as one layer"
            )
        self.holdings = holding_factors(problem.engine.holds)
        self._kept: dict[Hashable, Any] = {}
        self._options = OptionStore()
        self._of_variant: dict[Variant, VariantTables] = {}
        self.starts = self._starts()
        """[A]: the layers that a stage may begin with."""
        self.num_layers = len(self.starts)
        """Layers, or groups of layers where the chain is cut between groups alone."""

    def of(self, variant: Variant) -> VariantTables:
        """Tables of layers that are split so."""
        if variant not in self._of_variant:
            self._of_variant[variant] = VariantTables(
                problem=self.problem,
                variant=variant,
                holdings=self.holdings,
                starts=self.starts,
                micro_batches=self.micro_batches,
                store=self._options,
            )
        return self._of_variant[variant]

    @property
    def num_pruned(self) -> int:
        """Runs of layers of which options were pruned, in the options with the most."""
        return self._options.num_pruned

    @property
    def is_grouped(self) -> bool:
        """Whether stages may begin with some layers only."""
        return self.num_layers < len(self.problem.profile.layers.name)

    @property
    def is_open(self) -> bool:
        """Whether plans were left out: options were pruned, or layers are grouped."""
        return self.num_pruned > 0 or self.is_grouped

    def runs_of(self, cuts: Sequence[int]) -> list[tuple[int, int]]:
        """First group of each stage, and the one behind its last."""
        return list(zip(cuts, (*cuts[1:], self.num_layers), strict=True))

    def layers(self, cuts: Sequence[int]) -> list[tuple[int, int]]:
        """First and end layer of each stage, from the groups that stages begin with."""
        size = len(self.problem.profile.layers.name)
        first = [int(self.starts[cut]) for cut in cuts]
        return list(zip(first, (*first[1:], size), strict=True))

    def groups(self, layers: Sequence[int]) -> tuple[int, ...]:
        """The groups that some layers begin: `layers` the other way round."""
        return tuple(map(int, np.searchsorted(self.starts, layers)))

    def _starts(self) -> Ints:
        """Layers that a stage may begin with."""
        length = len(self.problem.profile.layers.name)
        if length <= MOST_GROUPS:
            return np.arange(length)
        least = self.problem.profile.least_micro_batch
        problem, bound = self.problem, Bound.EXPECTED
        chain = chain_bytes(problem.profile, bound, least)
        seconds = chain_seconds(problem.profile, problem.offers[0], bound, least)
        weights = [chain.state, chain.saved[KEPT], seconds.forward + seconds.backward]
        return group_starts(weights, MOST_GROUPS, self.problem.override.cuts)

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Value of a key, made when it is asked for first; keys open with a name."""
        if key not in self._kept:
            self._kept[key] = make()
        found: Value = self._kept[key]
        return found

    @cached_property
    def micro_batches(self) -> list[int]:
        """B of all tuples, in order."""
        fixed, limits = self.problem.override.micro_batch, self.problem.limits
        if fixed:
            return [fixed]
        most = limits.max_micro_batch or self.problem.global_batch_size
        least = self.problem.profile.least_micro_batch
        every = divisors(self.problem.global_batch_size)
        # Without any the batch divides by none, and b = 1 stands for all.
        return [b for b in every if least <= b <= most] or [1]
