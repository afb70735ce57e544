"""Tables of layers that are split in one way: bytes, seconds and options.

In: a problem, a variant. Out: arrays for a bound and a micro-batch, built on demand and
kept. Made by `cost_tables`.

What depends on what: bytes on (bound, b); seconds on (bound, b) and the offer, of which
those with the same rates share one entry; options on both. Where layers are split,
seconds depend on the link inside a node as well.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from plimsoll_planner.memory.added_bounds import HeldBytes, held_bytes
from plimsoll_planner.memory.bounds import Bound, Ints
from plimsoll_planner.memory.chain_bytes import (
    COUNTED,
    KEPT,
    RECOMPUTED,
    ChainBytes,
    chain_bytes,
    countable,
    with_outputs_held_once,
)
from plimsoll_planner.memory.engine_holdings import HoldingFactors
from plimsoll_planner.memory.joint_options import with_others
from plimsoll_planner.memory.option_arrays import OptionArrays, build_options
from plimsoll_planner.memory.stage_peaks import StageBytes, stage_bytes
from plimsoll_planner.records.engine import Way
from plimsoll_planner.records.model_profile import Variant
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.known_seconds import clock
from plimsoll_planner.search.option_store import OptionStore
from plimsoll_planner.techniques.technique import NO_CHOICE, StageChoice
from plimsoll_planner.timing.added_seconds import AddedSeconds, added_seconds
from plimsoll_planner.timing.chain_seconds import ChainSeconds, chain_seconds
from plimsoll_planner.timing.stage_runs import RunSeconds, run_seconds

Value = TypeVar("Value")


class VariantTables:
    """The tables of one variant."""

    def __init__(
        self,
        *,
        problem: Problem,
        variant: Variant,
        holdings: HoldingFactors,
        starts: Ints,
        micro_batches: Sequence[int],
        store: OptionStore,
    ) -> None:
        """Begin with nothing made.

        Args:
            problem: the question.
            variant: how layers are split.
            holdings: what the engine holds.
            starts: [A], layers that a stage may begin with.
            micro_batches: b of all tuples.
            store: room for options.
        """
        self.problem, self.variant = problem, variant
        self.holdings, self.starts = holdings, starts
        self._micro_batches, self._store = micro_batches, store
        self._kept: dict[Hashable, Any] = {}
        is_split = variant.tensor_degree > 1

        def key(offer: Offer) -> Hashable:
            return clock(offer), offer.link_in_node if is_split else None

        self._clocks = numbered(map(key, problem.offers))

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
                lambda: choice.bytes(
                    self.bytes_in_way(bound, micro_batch, choice.other_way)
                ),
            )
        return self.bytes_in_way(bound, micro_batch, Way.RECOMPUTED)

    def bytes_in_way(self, bound: Bound, micro_batch: int, other: Way) -> ChainBytes:
        """Bytes of the layers, which are kept or run in another way."""

        def make() -> ChainBytes:
            asked = self.problem.profile, bound, micro_batch, self.variant
            chain = countable(chain_bytes(*asked, other))
            if bound is Bound.LOWER and self.holdings.output_kept:
                chain = with_outputs_held_once(chain)
            return with_ways_left(chain, self.problem.override)

        return self.once(("bytes in way", bound, micro_batch, other), make)

    @property
    def num_probed(self) -> int:
        """Largest b whose bytes were probed; beyond, they are lines."""
        profile = self.problem.profile
        return max(
            self.once(("probed",), lambda: profile.costs.num_probed),
            profile.carried.value.num_probed,
        )

    def relaxed_bytes(self, bound: Bound, other: Way = Way.RECOMPUTED) -> ChainBytes:
        """Least bytes that each layer has at any micro-batch; see `family_bounds`.

        If the engine keeps outputs, how often one counts depends on the micro-batch
        (`with_outputs_held_once`), so it does not count here.
        """

        def make() -> ChainBytes:
            every, num_probed = self._micro_batches, self.num_probed
            probed = [b for b in every if b <= num_probed]
            lines = [b for b in every if b > num_probed]
            batches = (*probed, *lines[:1])
            chains = [self.bytes_in_way(bound, b, other) for b in batches]
            least: dict[str, Any] = {
                name: np.minimum.reduce([getattr(chain, name) for chain in chains])
                for name in COUNTED
            }
            if self.holdings.output_kept:
                least["backward_transient_at_end"] *= 0
                least["backward_transient"] *= chains[0].carried.given == 0
                least["own_output"] = np.zeros_like(chains[0].own_output)
            least["carried"] = replace(
                chains[0].carried,
                value=np.minimum.reduce([chain.carried.value for chain in chains]),
            )
            return replace(chains[0], **least)

        return self.once(("relaxed", bound, other), make)

    def relaxed_options(self, bound: Bound, at_work: StageChoice) -> OptionArrays:
        """OptionArrays of the relaxed bytes that count where speed does not."""
        return self.once(
            ("relaxed options", bound, at_work),
            lambda: build_options(
                at_work.bytes(self.relaxed_bytes(bound, at_work.other_way)),
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
                choice.bytes(self.relaxed_bytes(bound, choice.other_way)),
                self.holdings,
                self.starts,
            ),
        )

    def stages(
        self, bound: Bound, micro_batch: int, choice: StageChoice = NO_CHOICE
    ) -> StageBytes:
        """Matrices over all runs of layers as one stage, alike for all ways."""
        choice = choice.without_way

        def make() -> StageBytes:
            chain = self.bytes(bound, micro_batch, choice)
            if choice != NO_CHOICE and chain is self.bytes(bound, micro_batch):
                return self.stages(bound, micro_batch)
            return stage_bytes(chain, self.holdings, self.starts)

        return self.once(("stages", bound, micro_batch, choice), make)

    def offloaded(self, bound: Bound, micro_batch: int, other: Way) -> Ints:
        """[A, B]: activations on the host of a micro-batch, if no layer is kept."""

        def make() -> Ints:
            chain = self.bytes_in_way(bound, micro_batch, other)
            stages = stage_bytes(chain, self.holdings, self.starts)
            return stages.run_sums(chain.on_host[RECOMPUTED])

        return self.once(("offloaded", bound, micro_batch, other), make)

    def least_peak_options(
        self, bound: Bound, micro_batch: int, at_work: StageChoice, *, merge: bool
    ) -> OptionArrays:
        """OptionArrays that count where speed does not; see `options`."""
        return self.once(
            ("least peak", bound, micro_batch, at_work, merge),
            lambda: self._store.counted(
                build_options(
                    self.bytes(bound, micro_batch, at_work),
                    self.holdings,
                    None,
                    starts=self.starts,
                    is_lower=merge,
                )
            ),
        )

    def held(self, bound: Bound, micro_batch: int, other: Way) -> HeldBytes:
        """Bytes of a micro-batch that layers hold, whatever the others do."""
        return self.once(
            ("held", bound, micro_batch, other),
            lambda: held_bytes(self.bytes_in_way(bound, micro_batch, other)),
        )

    def boundaries(self, bound: Bound, micro_batch: int) -> Ints:
        """[A]: bytes over a link behind the last layer of each group."""
        ends = np.append(self.starts[1:], len(self.problem.profile.layers.name))
        return np.asarray(self.bytes(bound, micro_batch).linked[ends - 1])

    def clock(self, offer: int, other: Way = Way.RECOMPUTED) -> Hashable:
        """Key of the seconds on an offer: all that they depend on."""
        if not other.offloads:
            return self._clocks[offer]
        of = self.problem.offers[offer]
        devices = of.devices_per_node if of.host_link_shared else 1
        return self._clocks[offer], of.link_to_host, devices

    def seconds(self, offer: int, bound: Bound, micro_batch: int) -> ChainSeconds:
        """Seconds of the layers."""
        return self.once(
            ("seconds", self.clock(offer), bound, micro_batch),
            lambda: chain_seconds(
                self.problem.profile,
                self.problem.offers[offer],
                bound,
                micro_batch,
                self.variant,
            ),
        )

    def added(
        self, offer: int, bound: Bound, micro_batch: int, other: Way
    ) -> AddedSeconds:
        """Seconds that layers add which are run in another way than kept."""
        return self.once(
            ("added", self.clock(offer, other), bound, micro_batch, other),
            lambda: added_seconds(
                self.seconds(offer, bound, micro_batch),
                self.bytes_in_way(bound, micro_batch, other),
                self.problem.offers[offer],
                bound,
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
        at_work: StageChoice,
    ) -> OptionArrays:
        """Options with the seconds that recomputing adds; `merge` as in `Numbers`.

        They are of choices with such a part (`StageChoice.at_work`). Where some were
        pruned, those of the least memory are among them all the same.
        """

        def make() -> OptionArrays:
            build = partial(
                build_options,
                self.bytes(bytes_bound, micro_batch, at_work),
                self.holdings,
                self.added(offer, seconds_bound, micro_batch, at_work.other_way).both,
                starts=self.starts,
                is_lower=merge,
            )
            found = build()
            if found.pruned.any() and not merge:
                found = with_others(found, build(at_any_speed=True))
            return found

        of_seconds = self.clock(offer, at_work.other_way), seconds_bound
        key = (self.variant, *of_seconds, bytes_bound, merge, micro_batch, at_work)
        return self._store.once(key, make)


def with_ways_left(chain: ChainBytes, fixed: Override) -> ChainBytes:
    """Chain whose layers have the ways that somebody has left them."""
    allowed = chain.allowed.copy()
    for layers, does in (
        (fixed.recomputed_layers, chain.other.recomputes),
        (fixed.offloaded_layers, chain.other.offloads),
    ):
        if layers is not None:
            wanted = np.zeros(chain.num_layers, dtype=np.bool_)
            wanted[list(layers)] = True
            allowed[KEPT] &= ~wanted
            allowed[RECOMPUTED] &= wanted == does
    return replace(chain, allowed=allowed)


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
        group_end=np.add.reduceat(chain.group_end, starts),
    )
