"""The spec of a TrainingPlan, field by field: all that a person asks for.

The same types are read on one machine and on a cluster; the schema of the cluster and
docs/trainingplan.md are made from them. A field that is left out has the default that
stands here, and a field that is not here is refused with the nearest name. The fields
of `search` and `override` are rows of `plimsoll_planner.search_fields`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from plimsoll_operator.api.quantities import CoreQuantity, MemoryQuantity, memory_bytes
from plimsoll_operator.api.record import ApiRecord
from plimsoll_operator.api.search_fields import SearchSection, with_search_fields
from plimsoll_planner.records.bounds import (
    BatchSize,
    Count,
    Index,
    JsonObject,
    Range,
    Text,
)
from plimsoll_planner.records.problem import BatchStatistics

Timeout = Annotated[int, Range(minimum=1, maximum=10**9, unit="s")]
Retries = Annotated[int, Range(minimum=0, maximum=1000)]
Doublings = Annotated[int, Range(minimum=0, maximum=6)]
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


class Rehearse(StrEnum):
    """Whether the fullest rank is run alone on one device before the job is launched.

    What it holds there decides: out of memory widens the bound, and another plan is
    looked for.
    """

    NEVER = "Never"
    """It is not."""
    IF_DEVICE = "IfDevice"
    """It is where such a device is at hand: on this machine, or on a node that gets
    free within `runPolicy.pendingSeconds`."""
    ALWAYS = "Always"
    """It is, and without a device nothing is launched."""


class Backend(StrEnum):
    """What runs the ranks on a cluster.

    A release refuses to launch with what it has no back end for.
    """

    JOB = "Job"
    """An Indexed Job and a headless Service: nothing else is needed."""
    JOB_SET = "JobSet"
    """A JobSet."""
    TRAIN_JOB = "TrainJob"
    """A TrainJob of Kubeflow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload(ApiRecord):
    """What is trained: a function of your code, and what it is called with."""

    entrypoint: Entrypoint
    """The function that makes what is trained, as `package.module:function`; it returns
    a `plimsoll_trainer.workload.Workload`."""
    args: Arguments = "{}"
    """The keyword arguments that the entry point is called with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training(ApiRecord):
    """How long is trained, and by how many samples at a time."""

    global_batch_size: BatchSize
    """How many samples a step takes, over all replicas together."""
    steps: Count
    """How many steps the whole training has."""
    batch_statistics: BatchStatistics = BatchStatistics.FIXED_MICRO_BATCH
    """Who chooses the micro-batch, where layers such as BatchNorm compute over it and
    train differently with each size; without such layers it does not matter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint(ApiRecord):
    """Where a training saves, and what it begins with."""

    every_steps: Index = 0
    """How many steps lie between two checkpoints; 0: one is made at the end, and when
    the ranks are asked to stop."""
    claim_name: ObjectName = ""
    """The PersistentVolumeClaim that holds the checkpoints, in the namespace of the
    plan; on a cluster nothing is saved without one."""
    path: Path = ""
    """The folder below the claim, on one machine any folder, in which each plan has its
    own, named by its uid; empty: the claim or the state directory itself."""
    export_weights: bool = False
    """Whether the trained weights are written in the model's own format at the end,
    into `weights` beside the checkpoints; a workload with an `export` alone can, and on
    a cluster a plan with a `claimName`."""
    resume_from: Path = ""
    """The checkpoints of another plan to begin with, from the root of the claim on:
    PATH/UID, which are that plan's `path`, if it has one, and its uid. On one machine
    any folder. Empty: training begins anew."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OffersSource(ApiRecord):
    """Where the machines are listed that can be had."""

    config_map: ObjectName = ""
    """The ConfigMap whose key `offers.csv` is a table of the machines that can be had,
    in the namespace of the plan; on one machine it may stand in the same manifest.
    Empty: the machines that are here, the cluster's nodes or this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
@with_search_fields("spec.search")
class Search(SearchSection):
    """What plan is looked for, and in which space."""

    deadline_seconds: Timeout | None = None
    engine: Annotated[str, Text(shortest=1, longest=64)] = "plimsoll"
    """Engine that trains by the plan: `plimsoll` cuts a chain of layers into the stages
    of a pipeline, `graph` places the operators of a step one by one, which holds
    neither `rateFloor` nor `wholeNodes`, divides no state and keeps nothing on the
    host."""
    offers: OffersSource = field(default_factory=OffersSource)


@dataclass(frozen=True, kw_only=True, slots=True)
@with_search_fields("spec.override")
class PlanOverride(SearchSection):
    """Parts of the plan that a person fixes; obeyed, with a warning where unfit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile(ApiRecord):
    """How the workload's costs are found."""

    policy: ProfilePolicy = ProfilePolicy.IF_MISSING
    source: ProfileSource = ProfileSource.AUTO
    timeout_seconds: Timeout = 900
    """How long profiling may take, and a replay or a rehearsal as well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PerGPU(ApiRecord):
    """What a pod asks for beside each GPU."""

    cpu: CoreQuantity = "4"
    """How many cores of the host a pod asks for with each of its GPUs."""
    memory: MemoryQuantity = "16Gi"
    """How much memory of the host a pod asks for with each of its GPUs. Ranks ask for
    no less than their plan predicts. It is also the most that they get, and what the
    workload keeps, such as data, is not predicted."""

    @property
    def memory_bytes(self) -> int:
        """`memory` in bytes."""
        return memory_bytes(self.memory)


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch(ApiRecord):
    """How the job is started."""

    policy: LaunchPolicy = LaunchPolicy.LAUNCH
    require_certified: bool = True
    """Whether a plan is launched only where its replay agrees with it."""
    rehearse: Rehearse = Rehearse.NEVER
    backend: Backend = Backend.JOB
    queue_name: ObjectName = ""
    """The LocalQueue of Kueue that admits the job; empty: none."""
    priority_class_name: ObjectName = ""
    """The PriorityClass of the pods; empty: that of the template, else the cluster's
    default."""
    per_gpu: PerGPU = field(default_factory=PerGPU)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPolicy(ApiRecord):
    """What is done when a run fails, and how long it may take."""

    backoff_limit: Retries = 3
    """How many errors of the application are tried again; then the plan fails."""
    oom_replan_limit: Retries = 2
    """How many times a device that ran out of memory is planned around; then the plan
    fails."""
    host_memory_doublings: Doublings = 2
    """How many times, on a cluster, the memory of the pods is doubled after the kernel
    killed a rank for it: 2 is up to four times `launch.perGPU.memory`. Nothing is added
    that the nodes do not have, and what the template states itself stays."""
    node_lost_seconds: Timeout = 300
    """How long all that is left of an attempt may sit on unreachable nodes; then the
    attempt is over."""
    pending_seconds: Timeout = 3600
    """How long an attempt, or what is run before it, may wait for machines; then the
    plan fails."""
    running_seconds: Timeout | None = None
    """How long an attempt may run; then it is stopped, and the plan fails. Unset: any
    time."""
    replan_online: bool = True
    """Whether the plan may be revised while it runs: layers move to other stages, or
    are run in another way, if a stage is slower than planned, a rank holds more than
    its bound or a device is smaller. GPUs, replicas and the micro-batch stay."""
    replan_cooldown_seconds: Index = 60
    """How long a plan stays as it was revised, at least, whatever is observed."""
    replan_limit: Retries = 20
    """How many times an attempt is revised at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlanSpec(ApiRecord):
    """What is trained, and in which bounds: all that a person writes."""

    suspend: bool = False
    """Whether the training rests: true, and the ranks save and stop; false again, and a
    new attempt goes on."""
    workload: Workload
    training: Training
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    search: Search = field(default_factory=Search)
    override: PlanOverride = field(default_factory=PlanOverride)
    profile: Profile = field(default_factory=Profile)
    launch: Launch = field(default_factory=Launch)
    run_policy: RunPolicy = field(default_factory=RunPolicy)
    template: Template = "{}"
    """The pod template that all pods of the plan are made from: image, volumes,
    tolerations."""


def parse_spec(value: object) -> TrainingPlanSpec:
    """Read a spec as YAML or the API server give it.

    Raises:
        InvalidFieldError: with the field's path, what was given and what is allowed.
    """
    return TrainingPlanSpec.from_json(value, "spec")
