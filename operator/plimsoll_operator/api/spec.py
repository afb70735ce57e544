"""What a person asks for: the spec of a TrainingPlan, field by field.

The same types are read at home and on a cluster; the schema of the cluster and
docs/trainingplan.md are made from them. A field that is left out has the default that
stands here, and a field that is not here is refused with the nearest name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from plimsoll_operator.api.quantities import CoreQuantity, MemoryQuantity
from plimsoll_operator.api.record import ApiRecord
from plimsoll_planner.records.bounds import (
    BatchSize,
    Count,
    Entries,
    GPUCount,
    Index,
    JsonObject,
    Range,
    Text,
)
from plimsoll_planner.records.problem import Goal

DecimalFraction = Annotated[Decimal, Range(minimum=0, maximum=1)]
"""No floats in a manifest: readers round them differently."""
DecimalRate = Annotated[Decimal, Range(minimum=0, maximum=10**12, above=True)]
Timeout = Annotated[int, Range(minimum=1, maximum=10**9, unit="s")]
Retries = Annotated[int, Range(minimum=0, maximum=1000)]
IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
Entrypoint = Annotated[
    str,
    Text(
        shortest=3,
        longest=256,
        pattern=rf"{IDENTIFIER}(\.{IDENTIFIER})*:{IDENTIFIER}",
        meaning="package.module:function",
    ),
]
Path = Annotated[str, Text(longest=1024)]
ObjectName = Annotated[
    str,
    Text(
        longest=253,
        pattern=r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?",
        meaning="a name of lower-case letters, digits, - and .",
    ),
]
Arguments = Annotated[str, JsonObject(longest=16_384)]
Template = Annotated[str, JsonObject(longest=131_072)]
Layers = Annotated[tuple[Index, ...], Entries(most=10_000)]
"""Ten times as many as a search is made for."""


class ProfilePolicy(StrEnum):
    """Whether a profile that is there already will do."""

    IF_MISSING = "IfMissing"
    """It does; without one the workload is profiled."""
    ALWAYS = "Always"
    """It does not: the workload is profiled once for this plan."""
    NEVER = "Never"
    """It does; without one the plan fails."""


class ProfileSource(StrEnum):
    """How a profile comes about."""

    AUTO = "Auto"
    """Measured where a device of the kind is here, else traced."""
    MEASURED = "Measured"
    """Run and timed on a device."""
    TRACED = "Traced"
    """Bytes without a device; the times follow from the offers' rates."""


class LaunchPolicy(StrEnum):
    """Whether the job is started."""

    LAUNCH = "Launch"
    """It is, as soon as a plan is there."""
    PLAN_ONLY = "PlanOnly"
    """A dry run: everything but the job."""


class Backend(StrEnum):
    """What runs the ranks on a cluster."""

    JOB = "Job"
    """An Indexed Job and a headless Service: nothing else is needed."""
    JOB_SET = "JobSet"
    """A JobSet; not in this release, which refuses to launch one."""
    TRAIN_JOB = "TrainJob"
    """A TrainJob of Kubeflow; not in this release, which refuses to launch one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload(ApiRecord):
    """What is trained."""

    entrypoint: Entrypoint
    """A function that returns a `plimsoll_trainer.workload.Workload`."""
    args: Arguments = "{}"
    """Its keyword arguments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training(ApiRecord):
    """How long, and how much at a time."""

    global_batch_size: BatchSize
    """Samples of one step, over all replicas."""
    steps: Count
    """Steps of the whole training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint(ApiRecord):
    """Where training can go on from."""

    every_steps: Index = 0
    """Steps from one to the next; 0: only at the end, and when asked to stop."""
    claim_name: ObjectName = ""
    """The PersistentVolumeClaim that holds them, on a cluster."""
    path: Path = ""
    """Folder below the claim, or any at home, in which each plan has its own, named by
    its uid; empty: the claim or the home itself."""
    resume_from: Path = ""
    """The checkpoints of another plan to begin with, from the root of the claim on:
    PATH/UID, which are that plan's `path`, if it has one, and its uid. At home any
    folder. Empty: training begins anew."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OffersSource(ApiRecord):
    """Where the machines are listed that can be had."""

    config_map: ObjectName = ""
    """Lists them in a table `offers.csv`; at home it may stand in the same manifest.
    Empty: what is here, the cluster's nodes or this machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Search(ApiRecord):
    """What is looked for, and in which space."""

    objective: Goal = Goal.MINIMIZE_GPUS
    max_gpus: GPUCount = 16
    """Every count from 1 to this is searched."""
    rate_floor: DecimalFraction = Decimal("0.5")
    """Slowest rate that will do, as a part of the best samples per second per GPU over
    all counts allowed."""
    min_samples_per_second: DecimalRate | None = None
    """Slowest rate that will do, in samples; takes the place of `rateFloor`."""
    throughput_tolerance: DecimalFraction = Decimal("0.05")
    """Part of the throughput that may go for less memory, within the chosen count."""
    deadline_seconds: Timeout | None = None
    """For the whole training; with `MinimizeCost`."""
    headroom: DecimalFraction = Decimal(0)
    """Part of every device's memory that is kept free."""
    max_micro_batch: Count | None = None
    """Largest micro-batch that is searched; unset: any."""
    engine: Annotated[str, Text(shortest=1, longest=64)] = "plimsoll"
    """What trains by the plan; `plimsoll` is Plimsoll's own trainer."""
    offers: OffersSource = field(default_factory=OffersSource)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOverride(ApiRecord):
    """Parts of the plan that a person fixes; obeyed, with a warning where unfit."""

    gpus: GPUCount | None = None
    """Ranks of the job, one on each GPU."""
    pipeline: Count | None = None
    """Stages."""
    data: Count | None = None
    """Replicas."""
    micro_batch: Count | None = None
    """Samples that go through a stage at a time."""
    cuts: Layers = ()
    """First layer of each stage, counted from 0; empty: not fixed."""
    recomputed_layers: Layers | None = None
    """Exactly these recompute, counted from 0; `[]` is none of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile(ApiRecord):
    """How the workload's costs are found."""

    policy: ProfilePolicy = ProfilePolicy.IF_MISSING
    source: ProfileSource = ProfileSource.AUTO
    timeout_seconds: Timeout = 900
    """How long profiling may take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PerGPU(ApiRecord):
    """What a pod asks for beside each GPU."""

    cpu: CoreQuantity = "4"
    """Cores of the host."""
    memory: MemoryQuantity = "16Gi"
    """Memory of the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch(ApiRecord):
    """How the job is started."""

    policy: LaunchPolicy = LaunchPolicy.LAUNCH
    require_certified: bool = True
    """No plan is launched that its replay does not agree with."""
    backend: Backend = Backend.JOB
    queue_name: ObjectName = ""
    """LocalQueue of Kueue that admits the job; empty: none."""
    priority_class_name: ObjectName = ""
    """PriorityClass of the pods; empty: the cluster's default."""
    per_gpu: PerGPU = field(default_factory=PerGPU)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPolicy(ApiRecord):
    """What is done when a run fails, and how long it may take."""

    backoff_limit: Retries = 3
    """Errors of the application that are tried again; then the plan fails."""
    oom_replan_limit: Retries = 2
    """Out-of-memory errors that are planned around; then the plan fails."""
    node_lost_seconds: Timeout = 300
    """An attempt is over when all that is left of it sat on unreachable nodes for so
    long."""
    pending_seconds: Timeout = 3600
    """How long an attempt, or what is run before it, may wait for machines; then the
    plan fails."""
    running_seconds: Timeout | None = None
    """How long an attempt may run; then it is stopped, and the plan fails. Unset: no
    limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlanSpec(ApiRecord):
    """What is trained, and in which bounds: all that a person writes."""

    suspend: bool = False
    """True: the ranks save and stop; false again: a new attempt goes on."""
    workload: Workload
    training: Training
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    search: Search = field(default_factory=Search)
    override: PlanOverride = field(default_factory=PlanOverride)
    profile: Profile = field(default_factory=Profile)
    launch: Launch = field(default_factory=Launch)
    run_policy: RunPolicy = field(default_factory=RunPolicy)
    template: Template = "{}"
    """A pod template: image, volumes, tolerations."""


def parse_spec(value: object) -> TrainingPlanSpec:
    """Read a spec as YAML or the API server give it.

    Raises:
        InvalidFieldError: with the field's path, what was given and what is allowed.
    """
    return TrainingPlanSpec.from_json(value, "spec")
