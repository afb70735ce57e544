"""Parts of a plan that a person fixed, and which of them contradict each other."""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from plimsoll_planner.records.bounds import Count, Entries, GPUCount, Index
from plimsoll_planner.records.engine import OptimizerHome, Sharding, can_follow
from plimsoll_planner.records.model_profile import Sequences
from plimsoll_planner.records.record import Record

Layers = Annotated[tuple[Index, ...], Entries(most=10_000)]
Caps = Annotated[tuple[Count, ...], Entries(most=10_000)]
"""Ten times as many as a search is made for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Override(Record):
    """Parts of the plan that a person fixed: obeyed, and warned about where unfit."""

    num_gpus: GPUCount | None = None
    num_stages: Count | None = None
    data_degree: Count | None = None
    tensor_degree: Count | None = None
    micro_batch: Count | None = None
    cuts: Layers = ()
    """First layer of each stage, from 0 on; empty: not fixed."""
    recomputed_layers: Layers | None = None
    """Exactly these layers recompute; null: not fixed."""
    offloaded_layers: Layers | None = None
    """Exactly these have their activations in the memory of the machine, or their
    inputs, if they recompute; null: not fixed."""
    sharding: Sharding | None = None
    """Of every stage with replicas; null: not fixed."""
    optimizer_home: OptimizerHome | None = None
    """Of every stage; null: not fixed."""
    sequences: Sequences | None = None
    """Of tensor groups; null: not fixed."""
    in_flight_caps: Caps = ()
    """Micro-batches in flight of each stage, the same or one fewer from stage to stage
    and 1 on the last; empty: not fixed."""

    @property
    def is_given(self) -> bool:
        """Whether anything is fixed."""
        return self != NOTHING_FIXED

    @property
    def least_gpus(self) -> int:
        """Fewest GPUs that the fixed parts need."""
        return self.num_gpus or self.fixed_degrees

    @property
    def fixed_degrees(self) -> int:
        """Product of the degrees that are fixed."""
        degrees = self.stages, self.data_degree, self.tensor_degree
        return math.prod(degree or 1 for degree in degrees)

    @property
    def stages(self) -> int | None:
        """Number of stages, however it is fixed; None if it is not."""
        return len(self.cuts) or self.num_stages or len(self.in_flight_caps) or None

    def check_rules(self) -> None:
        """The parts do not contradict each other."""
        if self.cuts and (
            self.cuts[0] != 0 or list(self.cuts) != sorted(set(self.cuts))
        ):
            raise self.refuse("cuts", "layers that begin with 0 and rise")
        if self.cuts and self.num_stages not in {None, len(self.cuts)}:
            rule = f"{len(self.cuts)}, the stages that cuts has"
            raise self.refuse("num_stages", rule)
        self._check_caps()
        self._check_ways()
        product, named = self.fixed_degrees, "stages times replicas"
        if self.tensor_degree:
            named += " times the tensor degree"
        if self.num_gpus and self.num_gpus % product:
            raise self.refuse("num_gpus", f"a multiple of {product}, {named}")
        is_whole = self.stages and self.data_degree
        if self.num_gpus and is_whole and self.num_gpus != product:
            raise self.refuse("num_gpus", f"{product}, {named}")
        self.require_distinct("recomputed_layers", self.recomputed_layers or ())
        self.require_distinct("offloaded_layers", self.offloaded_layers or ())
        if self.data_degree == 1 and self.sharding not in {None, Sharding.NONE}:
            raise self.refuse("sharding", "none, where the data degree is 1")

    def _check_ways(self) -> None:
        """Layers of a stage that are not kept are all run in one way."""
        again, away = self.recomputed_layers or (), self.offloaded_layers or ()
        cuts = self.cuts or ((0,) if 1 in (self.stages, self.num_gpus) else ())
        if not (cuts and again and away):
            return
        pairs = {
            (bisect(cuts, layer), layer in again, layer in away)
            for layer in {*again, *away}
        }
        if len(pairs) > len({stage for stage, _, _ in pairs}):
            rule = "on each stage all layers that recompute, or others and none does"
            raise self.refuse("offloaded_layers", rule, away)

    def _check_caps(self) -> None:
        """Numbers in flight are those of a schedule, one for each stage."""
        stages = self.stages
        if self.in_flight_caps and len(self.in_flight_caps) != stages:
            raise self.refuse("in_flight_caps", f"one for each of {stages} stages")
        pairs = pairwise(self.in_flight_caps)
        if not all(can_follow(in_flight, before) for before, in_flight in pairs):
            rule = "the same or one fewer from stage to stage"
            raise self.refuse("in_flight_caps", rule, self.in_flight_caps)
        if self.in_flight_caps and self.in_flight_caps[-1] != 1:
            rule = "1 on the last stage, whose micro-batches turn at once"
            raise self.refuse("in_flight_caps", rule, self.in_flight_caps)


NOTHING_FIXED = Override()
