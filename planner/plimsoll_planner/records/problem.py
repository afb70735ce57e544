"""Question to the search: profile, machines, engine, batch, limits, objective.

A rule that names another field has its path in backticks (`plimsoll_planner.vocabulary`
says it in the words of whoever asked). Fields that a person sets have a row in
`plimsoll_planner.search_fields`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Annotated

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.bounds import (
    BatchSize,
    Count,
    Entries,
    Fraction,
    GPUCount,
    Index,
    Range,
)
from plimsoll_planner.records.device_overhead import DeviceOverhead
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.engine import (
    EngineTraits,
    OptimizerHome,
    Schedule,
    Sharding,
    can_follow,
)
from plimsoll_planner.records.fixed_parts import (
    check_degree,
    check_layers,
    check_techniques,
    check_tensor_degree,
)
from plimsoll_planner.records.model_profile import ModelProfile, Sequences
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.record import Record

SampleRate = Annotated[float, Range(minimum=0, maximum=1e12, above=True)]
"""Samples per second."""
Deadline = Annotated[float, Range(minimum=0, maximum=1e10, above=True, unit="s")]
Layers = Annotated[tuple[Index, ...], Entries(most=10_000)]
Caps = Annotated[tuple[Count, ...], Entries(most=10_000)]
"""Ten times as many as a search is made for."""


class Goal(StrEnum):
    """Quantity to make smallest or largest."""

    MINIMIZE_GPUS = "MinimizeGPUs"
    """The fewest GPUs at the slowest rate that will do, or faster."""
    MINIMIZE_MEMORY = "MinimizeMemory"
    """The least memory of any device, at the same rate."""
    MINIMIZE_COST = "MinimizeCost"
    """The least cost of the whole training."""
    MAXIMIZE_THROUGHPUT = "MaximizeThroughput"
    """The most samples per second, then fewer GPUs."""


class BatchStatistics(StrEnum):
    """Who chooses the micro-batch of layers that compute over it, as BatchNorm does."""

    FIXED_MICRO_BATCH = "FixedMicroBatch"
    """A person, in the override: what is trained depends on it."""
    PER_MICRO_BATCH = "PerMicroBatch"
    """The search: statistics over whatever micro-batch it takes will do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective(Record):
    """The goal, and the floor of speed without which it would be degenerate."""

    goal: Goal = Goal.MINIMIZE_GPUS
    rate_floor: Fraction = 0.5
    """Of the best samples per second per GPU over all counts allowed."""
    min_samples_per_s: SampleRate | None = None
    """Takes the place of `rate_floor`."""
    throughput_tolerance: Fraction = 0.05
    """Within the chosen count: how much throughput may go for less memory."""
    deadline_s: Deadline | None = None
    """For the whole training; with MinimizeCost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits(Record):
    """The part of the space that the search may use."""

    max_gpus: GPUCount
    """Counts from 1 to this are searched, every one of them."""
    headroom: Fraction = 0.0
    """Of the device memory, kept free on every device."""
    pipeline_degrees: tuple[Count, ...] = ()
    """Empty: any."""
    data_degrees: tuple[Count, ...] = ()
    """Empty: any."""
    tensor_degrees: tuple[Count, ...] = ()
    """Empty: any that the engine runs and the profile has."""
    schedules: tuple[Schedule, ...] = ()
    """Empty: any that the engine runs."""
    shardings: tuple[Sharding, ...] = tuple(Sharding)
    """Levels that each stage may have; what cannot be divided is whole under all."""
    optimizer_homes: tuple[OptimizerHome, ...] = tuple(OptimizerHome)
    """Where the optimizer state of each stage may be."""
    in_flight_caps: bool = True
    """Stages may hold fewer micro-batches in flight than the schedule lets them, if the
    engine can."""
    max_micro_batch: Count | None = None
    whole_nodes: bool = False
    """Count and pay whole nodes, as an autoscaler would start them: `MinimizeGPUs`
    makes their devices fewest, `MinimizeCost` prices them anyway, others refuse it."""
    max_tuples: Index | None = None
    """Work limit: (P, T, D, b, sharding, schedule) tuples that may be searched."""

    def usable_bytes(self, device_memory_bytes: int) -> int:
        """Bytes that a plan may use of a device, rounded down."""
        return int(device_memory_bytes * (1 - self.headroom))

    def check_rules(self) -> None:
        """Something is left to search."""
        for field in ("shardings", "optimizer_homes"):
            if not getattr(self, field):
                raise self.refuse(field, "at least one entry")
        names = ("pipeline_degrees", "data_degrees", "tensor_degrees")
        given = {name: allowed for name in names if (allowed := getattr(self, name))}
        least = math.prod(map(min, given.values()))
        if least > self.max_gpus:
            rule = f"at least {least}, which {' and '.join(given)} need"
            raise self.refuse("max_gpus", rule)
        if self.headroom == 1:
            raise self.refuse("headroom", "below 1, which leaves no memory at all")


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
        return self != Override()

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
        product, named = self.fixed_degrees, "stages times replicas"
        if self.tensor_degree:
            named += " times the tensor degree"
        if self.num_gpus and self.num_gpus % product:
            raise self.refuse("num_gpus", f"a multiple of {product}, {named}")
        is_whole = stages and self.data_degree
        if self.num_gpus and is_whole and self.num_gpus != product:
            raise self.refuse("num_gpus", f"{product}, {named}")
        self.require_distinct("recomputed_layers", self.recomputed_layers or ())


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem(Document):
    """One question to the search."""

    profile: ModelProfile
    overheads: tuple[DeviceOverhead, ...] = ()
    offers: tuple[Offer, ...]
    engine: EngineTraits
    global_batch_size: BatchSize
    """Samples in one step of all replicas."""
    num_steps: Count | None = None
    """Length of the training; needed where cost or a deadline is asked."""
    limits: Limits
    objective: Objective
    override: Override = Override()
    batch_statistics: BatchStatistics = BatchStatistics.FIXED_MICRO_BATCH
    """Matters where the profile has layers that compute over a micro-batch."""

    @property
    def needed_override(self) -> Override:
        """The part of the override without which the question has no answer."""
        is_fixed = self.batch_statistics is BatchStatistics.FIXED_MICRO_BATCH
        if is_fixed and self.profile.batch_statistics:
            return Override(micro_batch=self.override.micro_batch)
        return Override()

    @property
    def is_fixed_by_hand(self) -> bool:
        """Whether a person fixed more of the plan than the question needs."""
        return self.override != self.needed_override

    @property
    def has_in_flight_caps(self) -> bool:
        """Whether stages may hold fewer micro-batches in flight than the schedule."""
        return self.limits.in_flight_caps and self.engine.can.in_flight_caps

    @property
    def possible_tensor_degrees(self) -> tuple[int, ...]:
        """Those that the engine runs and the profile has."""
        return self.profile.tensor_degrees if self.engine.can.tensor_parallel else (1,)

    @property
    def tensor_degrees(self) -> tuple[int, ...]:
        """Those of them that limits and override allow."""
        possible = set(self.possible_tensor_degrees)
        fitting = self.profile.tensor_degrees_of(self.override.sequences)
        return tuple(d for d in fitting if d in possible and self.allows_degree(d))

    def allows_degree(self, degree: int) -> bool:
        """Whether limits and override leave room for a degree."""
        fixed, allowed = self.override.tensor_degree, self.limits.tensor_degrees
        return fixed in {None, degree} and (not allowed or degree in allowed)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Those that the engine runs and the limits allow."""
        allowed, runs = self.limits.schedules, self.engine.can.schedules
        return tuple(one for one in runs if not allowed or one in allowed)

    def check_rules(self) -> None:
        """The parts fit together, and a cost is asked only if it can be computed."""
        self._check_override()
        self._check_statistics()
        self._check_micro_batches()
        if not self.offers:
            raise self.refuse("offers", "at least one offer")
        self.require_distinct("offers", (offer.identity for offer in self.offers))
        self.require_distinct(
            "overheads", (overhead.key for overhead in self.overheads)
        )
        kinds = {offer.device_kind for offer in self.offers}
        if kinds != {self.profile.device_kind}:
            rule = f"devices of the profile's kind, {self.profile.device_kind}"
            raise self.refuse("offers", rule, ", ".join(sorted(kinds)))
        if not self.schedules:
            rule = f"a schedule of the engine: {', '.join(self.engine.can.schedules)}"
            raise self.refuse("limits.schedules", rule, self.limits.schedules)
        degrees = self.limits.tensor_degrees
        if degrees and 1 not in degrees and not self.engine.can.tensor_parallel:
            rule = f"1, as {self.engine.engine} has no tensor parallelism"
            raise self.refuse("limits.tensor_degrees", rule, degrees)
        if self.objective.deadline_s is not None and self.num_steps is None:
            raise self.refuse("num_steps", "a number, where a deadline is given")
        check_whole_nodes(self.limits, self.objective)
        check_prices(self.offers, self.objective)
        if self.objective.goal is Goal.MINIMIZE_COST and self.num_steps is None:
            raise self.refuse("num_steps", "a number, where MinimizeCost is asked")

    def _check_statistics(self) -> None:
        """Somebody chooses the micro-batch of layers that compute over it."""
        is_open = self.batch_statistics is BatchStatistics.FIXED_MICRO_BATCH
        if not is_open or self.override.micro_batch is not None:
            return
        if layers := self.profile.statistics_text:
            rule = (
                "a number, as statistics over the samples of a micro-batch decide what "
                f"is trained in {layers}; or set `batch_statistics` to "
                "PerMicroBatch, and the search chooses"
            )
            raise InvalidFieldError("Problem.override.micro_batch", None, rule)

    def _check_micro_batches(self) -> None:
        """Some micro-batch that was profiled is left."""
        least, limit = self.profile.least_micro_batch, self.limits.max_micro_batch
        rule = f"at least {least}, the least that was profiled"
        for field, value in (
            ("override.micro_batch", self.override.micro_batch),
            ("limits.max_micro_batch", limit),
            ("global_batch_size", self.global_batch_size),
        ):
            if value is not None and value < least:
                raise self.refuse(field, rule, value)

    def _check_override(self) -> None:
        """Fixed parts exist, and can be inside the limits."""
        fixed, limits, engine = self.override, self.limits, self.engine
        again = fixed.recomputed_layers or ()
        check_layers(self.profile, fixed.cuts, again, fixed.num_stages)
        check_degree("num_stages", fixed.num_stages, limits.pipeline_degrees)
        check_degree("data_degree", fixed.data_degree, limits.data_degrees)
        check_degree("tensor_degree", fixed.tensor_degree, limits.tensor_degrees)
        sequences = fixed.sequences
        check_tensor_degree(engine, self.profile, fixed.tensor_degree, sequences)
        check_techniques(engine, fixed.optimizer_home, fixed.sharding)
        if fixed.in_flight_caps and not self.has_in_flight_caps:
            rule = f"empty, as {engine.engine} keeps no stage to fewer in flight"
            raise self.refuse("override.in_flight_caps", rule, fixed.in_flight_caps)
        check_fixed(self.global_batch_size, limits, fixed)


def check_fixed(global_batch_size: int, limits: Limits, fixed: Override) -> None:
    """Raise `InvalidFieldError` unless limits and batch have room for what is fixed.

    Here, in `check_whole_nodes` and in `check_prices` is what a problem can be refused
    for before there is a profile.
    """
    if limits.max_gpus < fixed.least_gpus:
        rule = (
            f"at least {fixed.least_gpus}, which what is fixed needs; or leave it out"
        )
        raise InvalidFieldError("Problem.limits.max_gpus", limits.max_gpus, rule)
    most = limits.max_micro_batch
    if fixed.micro_batch and most and fixed.micro_batch > most:
        rule = f"at most {most}, which is `limits.max_micro_batch`"
        raise InvalidFieldError("Problem.override.micro_batch", fixed.micro_batch, rule)
    share = (fixed.data_degree or 1) * (fixed.micro_batch or 1)
    if global_batch_size % share:
        parts = {
            "override.data_degree": fixed.data_degree,
            "override.micro_batch": fixed.micro_batch,
        }
        names = " times ".join(f"`{name}`" for name, value in parts.items() if value)
        rule = f"a multiple of {share}, which is {names}"
        raise InvalidFieldError("Problem.global_batch_size", global_batch_size, rule)


HONOUR_WHOLE_NODES = (Goal.MINIMIZE_GPUS, Goal.MINIMIZE_COST)
"""Goals that count or price whole nodes."""


def check_whole_nodes(limits: Limits, objective: Objective) -> None:
    """Raise `InvalidFieldError` unless the goal counts whole nodes if asked to.

    A certificate lists the limits that it holds within, so none may be passed over.
    """
    if not limits.whole_nodes or objective.goal in HONOUR_WHOLE_NODES:
        return
    rule = (
        f"false with {objective.goal}, which counts no nodes: leave it out, or ask for "
        f"{' or '.join(HONOUR_WHOLE_NODES)}"
    )
    raise InvalidFieldError("Problem.limits.whole_nodes", True, rule)


def check_prices(offers: Sequence[Offer], objective: Objective) -> None:
    """Raise `InvalidFieldError` unless a cost that is asked for can be computed."""
    if objective.goal is not Goal.MINIMIZE_COST:
        return
    unpriced = [offer.name for offer in offers if offer.price_per_node_hour is None]
    if unpriced:
        rule = "offers that all have a price, where MinimizeCost is asked"
        raise InvalidFieldError("Problem.offers", ", ".join(unpriced), rule)
    currencies = {str(offer.currency) for offer in offers}
    if len(currencies) > 1:
        found = ", ".join(sorted(currencies))
        raise InvalidFieldError("Problem.offers", found, "one currency")
