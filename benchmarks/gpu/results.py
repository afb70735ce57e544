"""Results of `make gpu` as they are written: plain data with units in names.

Bytes of a prediction are three: lower, expected, upper. Those of a measurement are
three as well: allocated, reserved, device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from plimsoll_planner.overhead.observed import ObservedRank, observed_overhead
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey
from plimsoll_planner.records.rehearsal import MeasuredRank, MeasuredRanks

Interval = tuple[int, int, int]
Used = tuple[int, int, int]
NO_RANKS = MeasuredRanks(ranks=())


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileRow:
    """One quantity of the traced profile beside the measured one, over all kinds."""

    quantity: str
    largest_error: float
    """(traced - measured) / measured of the worst kind and micro-batch."""
    where: str
    num_compared: int
    largest_error_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRow:
    """One rehearsed rank."""

    plan: str
    rank: int
    micro_batch: int
    allocated: Interval
    """Predicted from the traced profile."""
    allocated_by_measured: Interval
    """Predicted from the measured profile."""
    device: Interval
    """Predicted, with the assumed or calibrated overhead."""
    replayed_bytes: int
    """Tensors by the replay, which needs no GPU."""
    phases: dict[str, Used]
    """Measured."""
    busy_s: tuple[float, float, float]
    """Predicted seconds of a step, but for waiting."""
    step_s: tuple[float, ...]
    """Measured, of the steady steps."""
    other_bytes: int | None
    full_phase: str = ""
    """Phase in which it ran out of memory; empty: it did not."""

    @property
    def peak(self) -> Used:
        """Largest of each number over the phases."""
        a, r, d = zip(*self.phases.values(), strict=True)
        return max(a), max(r), max(d)


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeRow:
    """One plan on either side of what a device holds."""

    micro_batch: int
    predicted: str
    """`fits` or `fails`."""
    ran: bool
    device: Interval
    peak_device_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelResult:
    """Everything about one model."""

    model: str
    num_parameters: int
    num_plans: int
    """That were asked for; less were measured if there are errors."""
    versions: dict[str, str]
    """Of what it was measured with, by name."""
    wall_s: float
    profile: tuple[ProfileRow, ...] = ()
    ranks: tuple[RankRow, ...] = ()
    edge: tuple[EdgeRow, ...] = ()
    errors: tuple[str, ...] = ()
    """Measurements that failed, and why."""


def rank_key(rank: MeasuredRank) -> tuple[str, int]:
    """Key of a measured rank among others."""
    return rank.observation.plan_digest, rank.observation.rank


def observed_rank(rank: MeasuredRank) -> ObservedRank:
    """A measured rank as a calibration takes it, in its fullest phase."""
    seen = rank.observation
    fullest = max(seen.peaks, key=lambda found: found.device_bytes)
    return ObservedRank(
        attempt=seen.plan_digest,
        micro_batch=rank.micro_batch,
        num_communicators=seen.num_communicators,
        predicted_allocated_bytes=rank.predicted.allocated.expected_bytes,
        allocated_bytes=fullest.allocated_bytes,
        reserved_bytes=fullest.reserved_bytes,
        device_bytes=fullest.device_bytes,
    )


@dataclass(kw_only=True, slots=True)
class Results:
    """All that was measured on one device with one torch."""

    date: str
    device: str
    kind: str
    capacity_bytes: int
    is_tiny: bool
    models: dict[str, ModelResult] = field(default_factory=dict[str, ModelResult])
    overhead: DeviceOverhead | None = None
    """Fitted to all rehearsed ranks."""
    observed: MeasuredRanks = NO_RANKS
    """All ranks that fit; `plimsoll calibrations --learn` reads them."""

    def covers(self, name: str, num_plans: int) -> bool:
        """Whether a model was measured, with so many plans and no error."""
        found = self.models.get(name)
        return bool(found and not found.errors and found.num_plans >= num_plans)

    def add(self, found: ModelResult) -> None:
        """Add a model, unless more ranks of it were measured before."""
        before = self.models.get(found.model)
        if before is None or len(before.ranks) <= len(found.ranks):
            self.models[found.model] = found

    def learn(self, ranks: Iterable[MeasuredRank]) -> None:
        """Add ranks in place of those of the same plans, and fit the overhead."""
        new = {rank_key(rank): rank for rank in (*self.observed.ranks, *ranks)}
        self.observed = MeasuredRanks(ranks=tuple(new.values()))
        by_key: dict[OverheadKey, list[ObservedRank]] = {}
        for rank in new.values():
            key = rank.observation.overhead_key
            by_key.setdefault(key, []).append(observed_rank(rank))
        for key, observed in by_key.items():
            self.overhead = observed_overhead(key, observed, ())

    def to_json(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        overhead = None if self.overhead is None else self.overhead.to_json()
        return {
            **asdict(self),
            "overhead": overhead,
            "observed": self.observed.to_json(),
        }


def results_from(data: dict[str, Any]) -> Results:
    """Results as they were written.

    Raises:
        InvalidInputError, KeyError, TypeError, ValueError, AttributeError: they were
            written by another release, or not by us.
    """
    models = {
        name: ModelResult(
            **{
                **model,
                "num_plans": int(model["num_plans"]),
                "profile": tuple(ProfileRow(**row) for row in model["profile"]),
                "ranks": tuple(rank_from(row) for row in model["ranks"]),
                "edge": tuple(
                    EdgeRow(**{**row, "device": tuple(row["device"])})
                    for row in model["edge"]
                ),
                "errors": tuple(model["errors"]),
            }
        )
        for name, model in data["models"].items()
    }
    overhead = data["overhead"]
    if overhead is not None:
        overhead = DeviceOverhead.from_json(overhead, "overhead")
    observed = MeasuredRanks.from_json(data["observed"], "observed")
    parsed = {"models": models, "overhead": overhead, "observed": observed}
    return Results(**{**data, **parsed})


def rank_from(row: dict[str, Any]) -> RankRow:
    """A rank as it was written: JSON knows no tuples."""
    listed = ("allocated", "allocated_by_measured", "device", "busy_s", "step_s")
    phases = {name: tuple(used) for name, used in row["phases"].items()}
    return RankRow(
        **{**row, **{name: tuple(row[name]) for name in listed}, "phases": phases}
    )
