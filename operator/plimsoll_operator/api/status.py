"""The status of a TrainingPlan, which Plimsoll reports.

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
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.model_profile import Sequences

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
Folder = Annotated[str, Text(longest=4096)]
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
MOST_REVISIONS = 10
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


TRUE, FALSE, UNKNOWN = Truth.TRUE, Truth.FALSE, Truth.UNKNOWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition(ApiRecord):
    """One aspect of where a plan stands."""

    type: ConditionType
    """Which aspect of the plan the condition is about."""
    status: Truth
    """Whether the condition holds."""
    reason: Reason
    """Why the condition is as it is, in one word; docs/trainingplan.md has the meaning
    of each."""
    message: Words = ""
    """Why the condition is as it is, in one line; empty where the reason says all."""
    observed_generation: Count = 1
    """The generation of the spec that the condition is about."""
    last_transition_time: Time = ""
    """When the status of the condition last changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileStatus(ApiRecord):
    """The profile that is planned with."""

    request_key: Label
    """What the profile is found by: a digest of the workload and what it runs in."""
    source: Label
    """How the profile came about: `traced` or `measured`."""
    is_cached: bool
    """Whether the profile was there before the plan was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanStatus(ApiRecord):
    """A plan, in short."""

    digest: Label
    """The digest of the whole plan, which lies in the store."""
    revision: Count = 1
    """How many plans of the same GPUs there have been, each in the place of the one
    before while that ran."""
    product: Label
    """The device that the plan is made for."""
    gpus: Count
    """How many GPUs the plan takes, with one rank on each."""
    nodes: Count
    """How many machines hold the GPUs of the plan."""
    pipeline: Count
    """How many stages the layers are cut into: the degree of pipeline parallelism."""
    data: Count
    """How many replicas train side by side: the degree of data parallelism."""
    tensor: Count = 1
    """How many ranks share each layer: the degree of tensor parallelism."""
    sequences: Sequences = Sequences.WHOLE
    """Whether the ranks that share each layer also split the sequences between them."""
    sharding: Label = str(Sharding.NONE)
    """Which state replicas divide: `none`, `optimizer`, `gradients` or `parameters`,
    the last two with all before; several, with commas, where stages differ."""
    optimizer_home: Label = str(OptimizerHome.DEVICE)
    """The memory that holds the optimizer: `device` or `host`; both, with a comma,
    where stages differ."""
    offloaded_layers: Index = 0
    """How many layers have their activations, or their inputs, in the memory of the
    machine between the passes."""
    micro_batch: Count
    """How many samples go through a stage at a time."""
    schedule: Label
    """The order of the forward and backward passes of a stage."""
    predicted_peak_bytes: Bytes
    """The upper bound of the fullest rank's device memory."""
    predicted_peak: Label = ""
    """The upper bound of the fullest rank's device memory as people read it, such as
    `1.31 GiB`."""
    capacity_bytes: Bytes
    """The memory of a device, less the headroom: the load line."""
    hourly_cost: DecimalAmount | None = None
    """The price of the plan's nodes for an hour; unset where the offer has none."""
    currency: Label = ""
    """The currency of the price, such as `USD`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificateStatus(ApiRecord):
    """Why no smaller count of GPUs will do."""

    smaller_gpus: Index
    """The count of GPUs just below that of the plan; 0 where the plan has one."""
    verdict: Verdict | None = None
    """What is known of the count just below that of the plan."""
    reason: Words = ""
    """Why the count just below will not do, for the plan that comes nearest; with
    `paidGPUs`, what is known of all plans that pay for fewer."""
    paid_gpus: Count | None = None
    """The GPUs of all nodes of the plan, where their number is what was made least
    (`spec.search.wholeNodes`); the count just below may then fit, on more nodes."""
    fewest_at_any_speed: Count | None = None
    """The fewest GPUs with a plan that fits, whatever its rate."""
    fewest_unfixed: Count | None = None
    """The fewest GPUs, certified, without `spec.override`; set where that is given."""
    space: Words
    """The techniques, degrees and limits within which the certificate holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadRef(ApiRecord):
    """The Job that runs the ranks on a cluster."""

    name: Label
    """The name of the Job that runs the ranks."""
    uid: Label
    """The uid of the Job that runs the ranks; another one of its name has another."""
    attempt: Count
    """The number of the attempt that the Job runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedStatus(ApiRecord):
    """What the ranks really used."""

    peak_bytes: Bytes
    """How much device memory the fullest rank has used."""
    peak: Label = ""
    """How much device memory the fullest rank has used as people read it, such as
    `1.31 GiB`."""
    error_percent: DecimalAmount
    """By how much the peak was off that was predicted worst of all ranks."""
    step_seconds: DecimalAmount | None = None
    """How long a training step takes: the median over ranks and steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RevisionStatus(ApiRecord):
    """A plan that took the place of the one that ran, or could not."""

    revision: Count
    """The number of the revision."""
    state: Label
    """State of the revision at its ranks: `offered`, `followed` or `refused`."""
    cause: Label
    """Cause: `Pace`, a stage computes more slowly or faster than planned;
    `Peak`, a rank held more than its bound; `Capacity`, a device is smaller."""
    moved_layers: Index = 0
    """Number of moves of a layer to a stage beside its own."""
    step_percent: DecimalAmount
    """Expected time of a step, in per cent of one by the plan before; above 100 where
    memory asked for it."""
    step: Index = 0
    """Number of steps after which the ranks followed or refused."""
    seconds: DecimalAmount | None = None
    """Time that training waited for the layers."""
    message: Words = ""
    """Reason of the ranks that refused."""
    time: Time = ""
    """Time of the revision."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointsStatus(ApiRecord):
    """The checkpoints of the plan."""

    claim_name: Label = ""
    """The claim that holds the folder; empty on one machine."""
    folder: Folder
    """The folder of the checkpoints: below the root of the claim, as
    `checkpoint.resumeFrom` of another plan names it; on one machine its whole path."""
    weights: Folder | None = None
    """The folder of the trained weights in the model's own format, named likewise;
    unset until they are written, and without `checkpoint.exportWeights`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failures(ApiRecord):
    """How often attempts have failed, by limit.

    Counted since the spec was edited, or the plan, having failed, was run again.
    """

    application: Index = 0
    """How many errors of the application are held against `runPolicy.backoffLimit`."""
    out_of_memory: Index = 0
    """How many times devices ran out of memory, which is held against
    `runPolicy.oomReplanLimit`."""
    disruption: Index = 0
    """How many times machines were lost or pods evicted; no limit is set to that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Status(ApiRecord):
    """Where the plan stands: written by Plimsoll alone."""

    observed_generation: Index = 0
    """The generation of the spec that was looked at last."""
    conditions: Annotated[tuple[Condition, ...], Entries(most=len(ConditionType))] = ()
    """Where the plan stands: its conditions, in the order in which they come true."""
    profile: ProfileStatus | None = None
    plan: PlanStatus | None = None
    """The plan of record, in short."""
    certificate: CertificateStatus | None = None
    alternatives: Annotated[
        tuple[PlanStatus, ...], Entries(most=MOST_ALTERNATIVES)
    ] = ()
    """Other plans that fit: fewer GPUs, less memory, more speed or less cost."""
    workload_ref: WorkloadRef | None = None
    observed: ObservedStatus | None = None
    checkpoints: CheckpointsStatus | None = None
    """The folder in which the ranks save; unset where nothing is saved."""
    revisions: Annotated[tuple[RevisionStatus, ...], Entries(most=MOST_REVISIONS)] = ()
    """The latest revisions of the plan in this attempt, the oldest first."""
    attempt: Index = 0
    """The number of the newest attempt; 0 before the first."""
    failures: Failures = field(default_factory=Failures)
    start_time: Time = ""
    """When the plan was first looked at."""
    completion_time: Time = ""
    """When the plan came to its end; empty until then."""

    def check_rules(self) -> None:
        """Each condition stands once."""
        self.require_distinct("conditions", (c.type for c in self.conditions))

    def condition(self, wanted: ConditionType) -> Condition | None:
        """One condition, None before it was reported."""
        return next((c for c in self.conditions if c.type is wanted), None)

    def truth(self, wanted: ConditionType) -> Truth:
        """Status of a condition, Unknown before it was reported."""
        found = self.condition(wanted)
        return Truth.UNKNOWN if found is None else found.status

    def reason(self, wanted: ConditionType) -> str:
        """Reason of a condition, empty before it was reported."""
        found = self.condition(wanted)
        return "" if found is None else found.reason

    def message(self, wanted: ConditionType) -> str:
        """Message of a condition, empty before it was reported."""
        found = self.condition(wanted)
        return "" if found is None else found.message

    def holds(self, wanted: ConditionType) -> bool:
        """Whether a condition is True."""
        return self.truth(wanted) is Truth.TRUE

    @property
    def is_over(self) -> bool:
        """Whether the plan has come to its end: Succeeded is True or False."""
        return self.truth(ConditionType.SUCCEEDED) is not Truth.UNKNOWN

    def with_condition(self, new: Condition, now: str) -> Self:
        """The status with one condition in place of the one before.

        The time of transition moves only when True, False or Unknown does.

        Args:
            new: its own time is not looked at.
            now: the time of a transition.
        """
        before = self.condition(new.type)
        has_moved = before is None or before.status is not new.status
        since = now if before is None or has_moved else before.last_transition_time
        known = {c.type: c for c in self.conditions}
        known[new.type] = replace(new, last_transition_time=since)
        ordered = tuple(known[kind] for kind in ConditionType if kind in known)
        return replace(self, conditions=ordered)
