"""Everything that the search computes once and reads often.

In: a problem. Out: arrays for a bound and a micro-batch, built on demand and kept;
options, which are large, for as long as there is room. Called by `tuple_context` and
what is built on it.

What depends on what: bytes on (bound, b); seconds on (bound, b) and the offer, of which
those with the same rates share one entry; options on both.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.chain_bytes import (
    COUNTED,
    KEPT,
    RECOMPUTED,
    Bound,
    ChainBytes,
    Ints,
    chain_bytes,
    countable,
    require_chain,
    with_outputs_held_once,
)
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.memory.option_arrays import (
    OptionArrays,
    build_options,
    with_others,
)
from plimsoll_planner.memory.stage_peaks import StageBytes, stage_bytes
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import divisors
from plimsoll_planner.search.grouping import group_starts
from plimsoll_planner.search.known_seconds import clock
from plimsoll_planner.search.searched import require_searched
from plimsoll_planner.techniques.technique import NO_CHOICE, StageChoice
from plimsoll_planner.timing.chain_seconds import ChainSeconds, chain_seconds
from plimsoll_planner.timing.stage_runs import RunSeconds, run_seconds

Value = TypeVar("Value")
MOST_GROUPS = 256
"""Arrays over all runs of layers and recompute choices grow with the cube; a longer
chain is cut between groups of layers."""
MOST_LAYERS = 4096
MOST_OPTION_BYTES = 2**30
"""OptionArrays that are kept; older ones are built again when they are asked for."""


class CostTables:
    """The tables of one problem."""

    def __init__(self, problem: Problem) -> None:
        """Check what the search cannot plan.

        Raises:
            CannotPlanError: not a chain, too long, or more than is searched.
        """
        require_searched(problem)
        require_chain(problem.profile)
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
        self.num_pruned = 0
        """Runs of layers of which options were pruned, in the options with the most."""
        self._kept: dict[Hashable, Any] = {}
        self._clocks = numbered(clock(offer) for offer in problem.offers)
        self._options: OrderedDict[Hashable, OptionArrays] = OrderedDict()
        self.starts = self._starts()
        """[A]: the layers that a stage may begin with."""
        self.num_layers = len(self.starts)
        """Layers, or groups of layers where the chain is cut between groups alone."""

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
        chain = chain_bytes(self.problem.profile, Bound.EXPECTED, least)
        seconds = self.seconds(0, Bound.EXPECTED, least)
        weights = [chain.state, chain.saved[KEPT], seconds.forward + seconds.backward]
        return group_starts(weights, MOST_GROUPS, self.problem.override.cuts)

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Value of a key, made when it is asked for first; keys open with a name."""
        if key not in self._kept:
            self._kept[key] = make()
        found: Value = self._kept[key]
        return found

    def bytes(
        self, bound: Bound, micro_batch: int, choice: StageChoice = NO_CHOICE
    ) -> ChainBytes:
        """Bytes of the layers, with the ways that an override leaves them."""
        if choice != NO_CHOICE:
            return self.once(
                ("bytes", bound, micro_batch, choice),
                lambda: choice.bytes(self.bytes(bound, micro_batch)),
            )

        def make() -> ChainBytes:
            chain = countable(chain_bytes(self.problem.profile, bound, micro_batch))
            if bound is Bound.LOWER and self.holdings.output_kept:
                chain = with_outputs_held_once(chain)
            fixed = self.problem.override.recomputed_layers
            if fixed is None:
                return chain
            again = np.zeros(chain.num_layers, dtype=np.bool_)
            again[list(fixed)] = True
            allowed = chain.allowed.copy()
            allowed[KEPT], allowed[RECOMPUTED] = ~again, again
            return replace(chain, allowed=allowed)

        return self.once(("bytes", bound, micro_batch), make)

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

    @cached_property
    def num_probed(self) -> int:
        """Largest b whose bytes were probed; beyond, they are lines."""
        return self.problem.profile.costs.num_probed

    def relaxed_bytes(self, bound: Bound) -> ChainBytes:
        """Least bytes that each layer has at any micro-batch; see `family_bounds`.

        If the engine keeps outputs, how often one counts depends on the micro-batch
        (`with_outputs_held_once`), so it does not count here.
        """

        def make() -> ChainBytes:
            probed = [b for b in self.micro_batches if b <= self.num_probed]
            lines = [b for b in self.micro_batches if b > self.num_probed]
            chains = [self.bytes(bound, b) for b in (*probed, *lines[:1])]
            least: dict[str, Any] = {
                name: np.minimum.reduce([getattr(chain, name) for chain in chains])
                for name in COUNTED
            }
            if self.holdings.output_kept:
                least["backward_transient_at_end"] *= 0
                least["own_output"] = np.zeros_like(chains[0].own_output)
            return replace(chains[0], **least)

        return self.once(("relaxed", bound), make)

    def relaxed_options(self, bound: Bound) -> OptionArrays:
        """OptionArrays of the relaxed bytes that count where speed does not."""
        return self.once(
            ("relaxed options", bound),
            lambda: build_options(
                self.relaxed_bytes(bound),
                self.holdings,
                None,
                starts=self.starts,
                is_lower=True,
            ),
        )

    def relaxed_stages(self, bound: Bound, choice: StageChoice) -> StageBytes:
        """Matrices of the relaxed bytes over all runs of layers as one stage."""
        return self.once(
            ("relaxed stages", bound, choice),
            lambda: stage_bytes(
                choice.bytes(self.relaxed_bytes(bound)), self.holdings, self.starts
            ),
        )

    def stages(
        self, bound: Bound, micro_batch: int, choice: StageChoice = NO_CHOICE
    ) -> StageBytes:
        """Matrices over all runs of layers as one stage."""

        def make() -> StageBytes:
            chain = self.bytes(bound, micro_batch, choice)
            if choice != NO_CHOICE and chain is self.bytes(bound, micro_batch):
                return self.stages(bound, micro_batch)
            return stage_bytes(chain, self.holdings, self.starts)

        return self.once(("stages", bound, micro_batch, choice), make)

    def least_peak_options(
        self, bound: Bound, micro_batch: int, *, merge: bool
    ) -> OptionArrays:
        """OptionArrays that count where speed does not; see `options`."""
        return self.once(
            ("least peak", bound, micro_batch, merge),
            lambda: self._built(
                build_options(
                    self.bytes(bound, micro_batch),
                    self.holdings,
                    None,
                    starts=self.starts,
                    is_lower=merge,
                )
            ),
        )

    def boundaries(self, bound: Bound, micro_batch: int) -> Ints:
        """[A]: bytes behind the last layer of each group."""
        ends = np.append(self.starts[1:], len(self.problem.profile.layers.name))
        return np.asarray(self.bytes(bound, micro_batch).boundary[ends - 1])

    def clock(self, offer: int) -> Hashable:
        """Key of the seconds on an offer: all that they depend on."""
        return self._clocks[offer]

    def seconds(self, offer: int, bound: Bound, micro_batch: int) -> ChainSeconds:
        """Seconds of the layers."""
        return self.once(
            ("seconds", self.clock(offer), bound, micro_batch),
            lambda: chain_seconds(
                self.problem.profile, self.problem.offers[offer], bound, micro_batch
            ),
        )

    def pass_seconds(
        self, offer: int, bound: Bound, micro_batch: int
    ) -> tuple[float, float]:
        """Seconds of both passes: of all layers, and of the longest one."""

        def make() -> tuple[float, float]:
            chain = self.seconds(offer, bound, micro_batch)
            return chain.total, float((chain.forward + chain.backward).max())

        return self.once(("passes", self.clock(offer), bound, micro_batch), make)

    def runs(self, offer: int, bound: Bound, micro_batch: int) -> RunSeconds:
        """Seconds of all runs of layers."""
        return self.once(
            ("runs", self.clock(offer), bound, micro_batch),
            lambda: run_seconds(
                grouped(self.seconds(offer, bound, micro_batch), self.starts)
            ),
        )

    def options(
        self,
        offer: int,
        bytes_bound: Bound,
        seconds_bound: Bound,
        merge: bool,
        micro_batch: int,
    ) -> OptionArrays:
        """Options with the seconds that recomputing adds; `merge` as in `Numbers`.

        Where some were pruned, those of the least memory are among them all the same.
        """
        key = (self.clock(offer), bytes_bound, seconds_bound, merge, micro_batch)
        if key not in self._options:
            build = partial(
                build_options,
                self.bytes(bytes_bound, micro_batch),
                self.holdings,
                self.seconds(offer, seconds_bound, micro_batch).recompute,
                starts=self.starts,
                is_lower=merge,
            )
            found = build()
            if found.pruned.any() and not merge:
                found = with_others(found, build(at_any_speed=True))
            self._options[key] = self._built(found)
            self._forget_options()
        self._options.move_to_end(key)
        return self._options[key]

    def _built(self, options: OptionArrays) -> OptionArrays:
        """Count the runs of which options were pruned."""
        self.num_pruned = max(self.num_pruned, int(options.pruned.sum()))
        return options

    def _forget_options(self) -> None:
        """Forget what was asked for longest ago, above a limit of memory."""
        total = sum(map(size_of, self._options.values()))
        while len(self._options) > 1 and total > MOST_OPTION_BYTES:
            _, forgotten = self._options.popitem(last=False)
            total -= size_of(forgotten)


def numbered(keys: Iterable[Hashable]) -> list[int]:
    """For each key the number of the first one that equals it."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def grouped(chain: ChainSeconds, starts: Ints) -> ChainSeconds:
    """Seconds of groups of layers."""
    return replace(
        chain,
        forward=np.add.reduceat(chain.forward, starts),
        backward=np.add.reduceat(chain.backward, starts),
        recompute=np.add.reduceat(chain.recompute, starts),
        optimizer_step=np.add.reduceat(chain.optimizer_step, starts),
        host_step=np.add.reduceat(chain.host_step, starts),
    )


def size_of(options: OptionArrays) -> int:
    """Bytes of all arrays."""
    return sum(
        array.nbytes
        for array in (
            *(options.saved, options.peak, options.seconds),
            *(options.num_recomputed, options.node, options.way, options.behind),
        )
    )
