"""Lower bounds of the seconds that a micro-batch takes a pipeline, for many tuples.

In: a candidate. Out: least period, so that no step of M micro-batches is shorter than M
of them. Called by `explore` and `gaps` before the programme of a tuple.

A stage with k in flight has a period of at least

    load + T              its passes with what recomputing adds
    (load + behind) / k   as each of k micro-batches stays until the layers behind are
                          done with it both ways

The bound holds for every M, and for every D at once, unless ranks may hold less if D is
larger: memory is relaxed to what all of them have, the inputs of k micro-batches alone,
no copies of gradients, the fewest communicators. Numbers in flight are taken in groups,
with the memory of the fewest and the time of the most of each.

What recomputing adds is exact (`stage_peaks.least_seconds`), or a lower bound of it
that costs next to nothing (`added_bounds`) and rules out most tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Floats
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.records.strategy import Strategy
from plimsoll_planner.search.added_by_recomputing import AddedByRecomputing, Rooms
from plimsoll_planner.search.numbers import Numbers
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_context import least_of
from plimsoll_planner.techniques import falls_with_replicas

AddedSeconds = Callable[[Candidate, Numbers, Rooms], Floats]
"""Least seconds [A, B] that recomputing adds within some rooms."""
WIDTH = 1.25
"""The most in flight of a group over the fewest."""
ROUNDING = 1e-12
"""Relative; quotients are no whole ticks."""


class Shared(NamedTuple):
    """All that bounds of tuples with other numbers of stages depend on."""

    offer: int
    capacity_bytes: int
    strategy: Strategy
    micro_batch: int
    offload: bool
    """Choices that offload count."""


class Periods:
    """Least periods; keeps what several tuples share."""

    def __init__(
        self, context: AddedByRecomputing, added_seconds: AddedSeconds
    ) -> None:
        """Begin with none known."""
        self._context = context
        self._added_seconds = added_seconds
        self._loads: dict[tuple[object, ...], Floats] = {}
        self._of_caps: dict[tuple[object, ...], dict[range, Floats]] = {}
        self._least: dict[tuple[object, ...], float] = {}

    def least(self, candidate: Candidate, numbers: Numbers) -> float:
        """Lower bound of the period; infinite if no plan fits."""
        context, stages = self._context, candidate.num_stages
        if context.tables.is_grouped and numbers.merge:
            return 0.0
        if candidate.num_micro_batches < stages:
            return 0.0
        alone = candidate
        if not falls_with_replicas(context.problem):
            mesh = replace(candidate.mesh, data=1)
            strategy = replace(candidate.strategy, mesh=mesh)
            alone = replace(candidate, strategy=strategy)
        capacity = context.capacity(candidate, Bound.UPPER)
        offload = context.offloads(candidate, numbers.bytes, capacity)
        alike = context.alike(alone).offer, alone.strategy, alone.micro_batch
        key = (*alike, numbers, offload)
        if key not in self._least:
            shared = self._shared(alone, offload)
            values = [
                self._of_stage(alone, stages - s, numbers, shared)
                for s in range(stages)
            ]
            found = context.placement(stages).least_largest(values)
            self._least[key] = np.inf if found is None else found.value
        return self._least[key]

    def _of_stage(
        self, alone: Candidate, left: int, numbers: Numbers, shared: Shared
    ) -> Floats:
        """[A, B]: least periods of a stage, `left` stages from it to the last."""
        caps = self._context.caps(alone.schedule, left, alone.num_stages)
        kept = self._of_caps.setdefault((*shared, numbers), {})
        if caps not in kept:
            is_open = len(caps) > 1
            groups = groups_up_to(caps[-1]) if is_open else [(caps[0], caps[0])]
            kept[caps] = least_of(
                self._of_group(alone, group, numbers, shared) for group in groups
            )
        return kept[caps]

    def _shared(self, alone: Candidate, offload: bool) -> Shared:
        """All that bounds of tuples with other numbers of stages depend on."""
        capacity = self._context.capacity(alone, Bound.UPPER)
        offer = self._context.alike(alone).offer
        strategy = alone.strategy.without_stages
        return Shared(offer, capacity, strategy, alone.micro_batch, offload)

    def _of_group(
        self,
        alone: Candidate,
        group: tuple[int, int],
        numbers: Numbers,
        shared: Shared,
    ) -> Floats:
        """[A, B]: periods with the memory of the fewest and the time of the most."""
        context, (fewest, most) = self._context, group
        key = (*shared, numbers, group)
        if key not in self._loads:
            flow = Flow(
                in_flight=fewest,
                num_micro_batches=fewest,
                micro_batch=alone.micro_batch,
                data_degree=alone.mesh.data,
            )
            capacity, offload = context.capacity(alone, Bound.UPPER), shared.offload
            rooms = context.most_room(alone, numbers, capacity, flow, offload)
            added = self._added_seconds(alone, numbers, rooms)
            costs, b = context.costs(alone), alone.micro_batch
            runs = costs.runs(alone.offer, Bound.EXPECTED, b)
            load = runs.forward + runs.backward
            before = runs.forward_before + runs.backward_before
            behind = before[-1] - before
            stays = (load + behind) / most * (1 - ROUNDING)
            self._loads[key] = np.maximum(load + added, stays)
        return self._loads[key]


@cache
def groups_up_to(most: int) -> list[tuple[int, int]]:
    """Groups of numbers in flight from 1 on; the last one reaches `most`."""
    groups: list[tuple[int, int]] = []
    fewest = 1
    while fewest <= most:
        groups.append((fewest, int(fewest * WIDTH)))
        fewest = groups[-1][1] + 1
    return groups
