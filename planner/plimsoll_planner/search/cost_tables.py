"""Everything that the search computes once and asks often.

In: a problem. Out: arrays for a bound and a micro-batch, built on demand and kept while
they are likely to be asked again. Called by `tuple_search` only.

What depends on what: bytes on (bound, b); seconds on (bound, b) and the offer, of which
those with the same rates share one entry; labels on both.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.chain_bytes import (
    KEPT,
    RECOMPUTED,
    Bound,
    ChainBytes,
    chain_bytes,
    require_chain,
)
from plimsoll_planner.memory.engine_holdings import held_by
from plimsoll_planner.memory.recompute_labels import Labels, build_labels
from plimsoll_planner.memory.stage_peaks import StageBytes, stage_bytes
from plimsoll_planner.records.engine import Granularity, Schedule
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.timing.chain_seconds import ChainSeconds, chain_seconds
from plimsoll_planner.timing.step_bound import RunSeconds, run_seconds

Value = TypeVar("Value")
MOST_LAYERS = 256
"""Arrays over all runs of layers and recompute choices grow with the cube."""
MOST_LABEL_BYTES = 2**30
"""Labels that are kept; older ones are built again when they are asked for."""


class CostTables:
    """The tables of one problem."""

    def __init__(self, problem: Problem) -> None:
        """Check what the search cannot plan.

        Raises:
            CannotPlanError: not a chain, too long, or an engine that recomputes whole
                stages.
        """
        require_chain(problem.profile)
        self.problem = problem
        self.num_layers = len(problem.profile.layers.name)
        if self.num_layers > MOST_LAYERS:
            raise CannotPlanError(
                f"the profile has {self.num_layers} layers, up to {MOST_LAYERS} are "
                "planned: profile larger blocks as one layer"
            )
        if problem.engine.can.recompute is not Granularity.LAYER:
            raise CannotPlanError(
                f"engine {problem.engine.engine} recomputes by "
                f"{problem.engine.can.recompute},"
                " and only recompute by layer is planned yet"
            )
        if Schedule.ONE_F_ONE_B not in problem.limits.schedules:
            raise CannotPlanError("limits.schedules: only 1F1B is planned yet, add it")
        if 1 not in problem.limits.tensor_degrees:
            raise CannotPlanError(
                "limits.tensor_degrees: only 1 is planned yet, add it"
            )
        self.held = held_by(problem.engine.holds)
        self.is_exact = True
        """No labels were thinned."""
        self._kept: dict[Hashable, Any] = {}
        self._labels: OrderedDict[Hashable, Labels] = OrderedDict()

    def _once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        if key not in self._kept:
            self._kept[key] = make()
        found: Value = self._kept[key]
        return found

    def bytes(self, bound: Bound, micro_batch: int) -> ChainBytes:
        """Return the bytes, with the choices that an override leaves."""

        def make() -> ChainBytes:
            chain = chain_bytes(self.problem.profile, bound, micro_batch)
            fixed = self.problem.override.recomputed_layers
            if fixed is None:
                return chain
            again = np.zeros(self.num_layers, dtype=np.bool_)
            again[list(fixed)] = True
            allowed = chain.allowed.copy()
            allowed[KEPT], allowed[RECOMPUTED] = ~again, again
            return replace(chain, allowed=allowed)

        return self._once(("bytes", bound, micro_batch), make)

    def stages(self, bound: Bound, micro_batch: int) -> StageBytes:
        """Return the matrices over all stages."""
        return self._once(
            ("stages", bound, micro_batch),
            lambda: stage_bytes(self.bytes(bound, micro_batch), self.held),
        )

    def corner_labels(self, bound: Bound, micro_batch: int) -> Labels:
        """Return the labels that count where speed does not."""
        return self._once(
            ("corner", bound, micro_batch),
            lambda: build_labels(
                self.bytes(bound, micro_batch),
                self.held,
                None,
                is_lower=bound is Bound.LOWER,
            ),
        )

    def clock(self, offer: int) -> Hashable:
        """Return what the seconds on an offer depend on."""
        found: Offer = self.problem.offers[offer]
        return (
            found.device_product,
            found.compute_rates,
            found.memory_bandwidth_bytes_per_s,
        )

    def seconds(self, offer: int, bound: Bound, micro_batch: int) -> ChainSeconds:
        """Return the seconds of the layers."""
        return self._once(
            ("seconds", self.clock(offer), bound, micro_batch),
            lambda: chain_seconds(
                self.problem.profile, self.problem.offers[offer], bound, micro_batch
            ),
        )

    def runs(self, offer: int, bound: Bound, micro_batch: int) -> RunSeconds:
        """Return the seconds of all runs of layers."""
        return self._once(
            ("runs", self.clock(offer), bound, micro_batch),
            lambda: run_seconds(self.seconds(offer, bound, micro_batch)),
        )

    def labels(
        self, offer: int, bytes_bound: Bound, seconds_bound: Bound, micro_batch: int
    ) -> Labels:
        """Return the labels with the seconds that recomputing adds."""
        key = (self.clock(offer), bytes_bound, seconds_bound, micro_batch)
        if key not in self._labels:
            self._labels[key] = build_labels(
                self.bytes(bytes_bound, micro_batch),
                self.held,
                self.seconds(offer, seconds_bound, micro_batch).recompute,
                is_lower=bytes_bound is Bound.LOWER,
            )
            self.is_exact = self.is_exact and self._labels[key].is_exact
            self._forget_labels()
        self._labels.move_to_end(key)
        return self._labels[key]

    def _forget_labels(self) -> None:
        """Forget what was asked for longest ago, above a limit of memory."""
        total = sum(map(size_of, self._labels.values()))
        while len(self._labels) > 1 and total > MOST_LABEL_BYTES:
            _, forgotten = self._labels.popitem(last=False)
            total -= size_of(forgotten)


def size_of(labels: Labels) -> int:
    """Return the bytes of all arrays."""
    return sum(
        array.nbytes
        for array in (
            *(labels.saved, labels.peak, labels.seconds),
            *(labels.num_recomputed, labels.first, labels.parent),
        )
    )
