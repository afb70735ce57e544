"""What is told back: the status of a TrainingPlan.

Conditions say where a plan stands; numbers beside them are those that people look for
first. Larger things (profiles, whole plans, certificates) lie in the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Self

from plimsoll_operator.api.record import ApiRecord
from plimsoll_planner.records.bounds import (
    Bytes,
    Count,
    Entries,
    Index,
    Label,
    Range,
    Text,
)
from plimsoll_planner.records.interval import Verdict

DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
CLOCK = "[0-9]{2}:[0-9]{2}:[0-9]{2}"
Time = Annotated[
    str,
    Text(
        longest=20,
        pattern=f"({DAY}T{CLOCK}Z)?",
        meaning="a time such as 2026-11-21T09:30:00Z",
    ),
]
Words = Annotated[str, Text(longest=1024)]
Reason = Annotated[
    str,
    Text(
        shortest=1,
        longest=64,
        pattern="[A-Z][A-Za-z0-9]*",
        meaning="a word such as GPUOutOfMemory",
    ),
]
DecimalAmount = Annotated[Decimal, Range(minimum=0, maximum=10**15)]
MOST_ALTERNATIVES = 5


class ConditionType(StrEnum):
    """The conditions, in the order in which they come true."""

    ACCEPTED = "Accepted"
    """The spec is valid, and what it names is there."""
    PROFILED = "Profiled"
    """There is a profile of this workload."""
    PLANNED = "Planned"
    """A plan fits."""
    CERTIFIED = "Certified"
    """The plan's replay holds what was predicted."""
    LAUNCHED = "Launched"
    """The ranks of an attempt were started."""
    SUCCEEDED = "Succeeded"
    """The summary: True and False are final."""


class Truth(StrEnum):
    """The status of a condition."""

    TRUE = "True"
    """It has come true."""
    FALSE = "False"
    """It is not true; the reason says whether it may still become so."""
    UNKNOWN = "Unknown"
    """It is on its way, or waits for the conditions before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition(ApiRecord):
    """One aspect of where a plan stands."""

    type: ConditionType
    """Which aspect."""
    status: Truth
    """Whether it holds."""
    reason: Reason
    """Why, in one word; the words are listed under Conditions."""
    message: Words = ""
    """Why, in one line; empty where the reason says it all."""
    observed_generation: Count = 1
    """Generation of the spec that this was said of."""
    last_transition_time: Time = ""
    """When `status` last changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileStatus(ApiRecord):
    """The profile that is planned with."""

    request_key: Label
    """What it is found by: a digest of the workload and all that it runs in."""
    source: Label
    """`traced` or `measured`."""
    is_cached: bool
    """It was there before the plan was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanStatus(ApiRecord):
    """The plan of record, in short."""

    digest: Label
    """Of the whole plan, which lies in the store."""
    product: Label
    """The device it is made for."""
    gpus: Count
    """Ranks, one on each GPU."""
    nodes: Count
    """Machines that hold them."""
    pipeline: Count
    """Stages."""
    data: Count
    """Replicas."""
    tensor: Count = 1
    """Ranks that share each layer."""
    micro_batch: Count
    """Samples that go through a stage at a time."""
    schedule: Label
    """Order of the forward and backward passes of a stage."""
    predicted_peak_bytes: Bytes
    """Upper bound of the fullest rank's device memory."""
    predicted_peak: Label = ""
    """The same for people, such as `1.31 GiB`."""
    capacity_bytes: Bytes
    """Of a device, less the headroom: the load line."""
    hourly_cost: DecimalAmount | None = None
    """Price of the nodes; unset where the offer has none."""
    currency: Label = ""
    """Of that price, such as `USD`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificateStatus(ApiRecord):
    """Why no smaller count will do."""

    smaller_gpus: Index
    """The count just below; 0 where the plan has one GPU."""
    verdict: Verdict | None = None
    """On that count."""
    reason: Words = ""
    """Why that count will not do, for the plan that comes nearest."""
    fewest_at_any_speed: Count | None = None
    """Fewest GPUs with a plan that fits, whatever its rate."""
    fewest_unfixed: Count | None = None
    """Certified fewest GPUs without `spec.override`; told where that is given."""
    space: Words
    """Techniques, degrees and limits within which this holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadRef(ApiRecord):
    """What runs the ranks on a cluster."""

    name: Label
    """Of the Job."""
    uid: Label
    """Of the Job: another one of that name has another."""
    attempt: Count
    """Number of the attempt that it runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedStatus(ApiRecord):
    """What the ranks really used."""

    peak_bytes: Bytes
    """Of the fullest rank."""
    peak: Label = ""
    """The same for people, such as `1.31 GiB`."""
    error_percent: DecimalAmount
    """Of the rank whose peak was predicted worst: by how much it was off."""
    step_seconds: DecimalAmount | None = None
    """Of a training step: the median over ranks and steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failures(ApiRecord):
    """How often attempts have failed, by limit.

    Since the spec was edited, or the plan, having failed, was run again.
    """

    application: Index = 0
    """Held against `runPolicy.backoffLimit`."""
    out_of_memory: Index = 0
    """Of devices; held against `runPolicy.oomReplanLimit`."""
    disruption: Index = 0
    """Lost machines and evictions; no limit is set to them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Status(ApiRecord):
    """Where the plan stands: written by Plimsoll alone."""

    observed_generation: Index = 0
    """Generation of the spec that was looked at last."""
    conditions: Annotated[tuple[Condition, ...], Entries(most=len(ConditionType))] = ()
    """Where the plan stands, in the order in which they come true."""
    profile: ProfileStatus | None = None
    plan: PlanStatus | None = None
    certificate: CertificateStatus | None = None
    alternatives: Annotated[
        tuple[PlanStatus, ...], Entries(most=MOST_ALTERNATIVES)
    ] = ()
    """Other plans that fit: fewer GPUs, less memory, more speed or less cost."""
    workload_ref: WorkloadRef | None = None
    observed: ObservedStatus | None = None
    attempt: Index = 0
    """Number of the newest attempt; 0 before the first."""
    failures: Failures = field(default_factory=Failures)
    start_time: Time = ""
    """When the plan was first looked at."""
    completion_time: Time = ""
    """When it came to its end; empty until then."""

    def check_rules(self) -> None:
        """Each condition stands once."""
        self.require_distinct("conditions", (c.type for c in self.conditions))

    def condition(self, wanted: ConditionType) -> Condition | None:
        """Return one condition, None where nothing was said of it yet."""
        return next((c for c in self.conditions if c.type is wanted), None)

    def holds(self, wanted: ConditionType) -> bool:
        """Tell whether a condition is True."""
        found = self.condition(wanted)
        return found is not None and found.status is Truth.TRUE

    @property
    def is_over(self) -> bool:
        """Tell whether the plan has come to its end: Succeeded is True or False."""
        found = self.condition(ConditionType.SUCCEEDED)
        return found is not None and found.status is not Truth.UNKNOWN

    def saying(self, said: Condition, now: str) -> Self:
        """Return the status with one condition in place of what it said before.

        The time of transition moves only when True, False or Unknown does.

        Args:
            said: its own time is not looked at.
            now: the time of a transition.
        """
        before = self.condition(said.type)
        has_moved = before is None or before.status is not said.status
        since = now if before is None or has_moved else before.last_transition_time
        told = {c.type: c for c in self.conditions}
        told[said.type] = replace(said, last_transition_time=since)
        ordered = tuple(told[kind] for kind in ConditionType if kind in told)
        return replace(self, conditions=ordered)
