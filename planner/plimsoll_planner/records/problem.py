"""Question to the search: profile, machines, engine, batch, limits, objective.

A rule that names another field has its path in backticks (`plimsoll_planner.vocabulary`
says it in the words of whoever asked). Fields that a person sets have a row in
`plimsoll_planner.search_fields`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.bounds import BatchSize, Count
from plimsoll_planner.records.device_overhead import DeviceOverhead
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.engine import EngineTraits, Schedule
from plimsoll_planner.records.fixed_parts import (
    check_degree,
    check_layers,
    check_techniques,
    check_tensor_degree,
)
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.override import NOTHING_FIXED, Override


class BatchStatistics(StrEnum):
    """Who chooses the micro-batch of layers that compute over it, as BatchNorm does."""

    FIXED_MICRO_BATCH = "FixedMicroBatch"
    """A person, in the override: what is trained depends on it."""
    PER_MICRO_BATCH = "PerMicroBatch"
    """The search: statistics over whatever micro-batch it takes will do."""


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
    override: Override = NOTHING_FIXED
    batch_statistics: BatchStatistics = BatchStatistics.FIXED_MICRO_BATCH
    """Matters where the profile has layers that compute over a micro-batch."""

    @property
    def needed_override(self) -> Override:
        """The part of the override without which the question has no answer."""
        is_fixed = self.batch_statistics is BatchStatistics.FIXED_MICRO_BATCH
        if is_fixed and self.profile.batch_statistics:
            return Override(micro_batch=self.override.micro_batch)
        return NOTHING_FIXED

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

    @property
    def places_operators(self) -> bool:
        """Whether plans place operators, in the place of layers."""
        return Schedule.PLACED in self.schedules

    @property
    def relative_floor(self) -> float:
        """Part of the best rate that plans must reach, unless a number is asked for.

        None of it where operators are placed: the best of all placements is not known.
        """
        return 0.0 if self.places_operators else self.objective.rate_floor

    @property
    def asked_samples_per_s(self) -> float:
        """Rate that is asked for in numbers, by itself or by a deadline; 0: none."""
        least, deadline_s = self.objective.min_samples_per_s, self.objective.deadline_s
        if not (deadline_s and self.num_steps):
            return least or 0.0
        return max(least or 0.0, self.global_batch_size * self.num_steps / deadline_s)

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
        off = fixed.offloaded_layers or ()
        stages = None if self.places_operators else fixed.num_stages
        check_layers(self.profile, fixed.cuts, again, off, stages)
        check_degree("num_stages", fixed.num_stages, limits.pipeline_degrees)
        check_degree("data_degree", fixed.data_degree, limits.data_degrees)
        check_degree("tensor_degree", fixed.tensor_degree, limits.tensor_degrees)
        sequences = fixed.sequences
        check_tensor_degree(engine, self.profile, fixed.tensor_degree, sequences)
        check_techniques(engine, fixed.optimizer_home, fixed.sharding)
        if fixed.in_flight_caps and not self.has_in_flight_caps:
            rule = "empty, as limits.in_flight_caps is false"
            if limits.in_flight_caps:
                rule = f"empty, as {engine.engine} keeps no stage to fewer in flight"
            raise self.refuse("override.in_flight_caps", rule, fixed.in_flight_caps)
        check_fixed(self.global_batch_size, limits, fixed)
        if self.places_operators:
            check_placing(limits, fixed)


def check_fixed(global_batch_size: int, limits: Limits, fixed: Override) -> None:
    """Raise `InvalidFieldError` unless limits and batch have room for what is fixed.

    Here, in `check_placing`, `check_whole_nodes` and `check_prices` is what a problem
    can be refused for before there is a profile.
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


OF_LAYERS = ("cuts", "recomputed_layers", "offloaded_layers", "in_flight_caps")
"""Fields of an override that placed operators have nothing of."""


def check_placing(limits: Limits, fixed: Override) -> None:
    """Raise `InvalidFieldError` for what no search for a placement holds."""
    if limits.whole_nodes:
        rule = "false, as placements are searched by devices, not by whole nodes"
        raise InvalidFieldError("Problem.limits.whole_nodes", True, rule)
    for name in OF_LAYERS:
        value = getattr(fixed, name)
        if value:
            rule = "empty, as it is of layers, and operators are placed one by one"
            raise InvalidFieldError(f"Problem.override.{name}", value, rule)


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
