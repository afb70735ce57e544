"""The observed state of one TrainingPlan: its processes or pods, and the store.

Made by the observers (`backends.local.observe`, `control.observe`) just before a
decision and live; absence in here is believed. Nothing is kept between
two decisions but what stands in here and in the status.

    ObservedTask   one that runs or ran: profiling, replaying, or a worker group
    Attempt        a plan of record, and what became of it once that was written down
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from plimsoll_operator.api.status import CheckpointsStatus, ObservedStatus
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.revision import Revision
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.records.task import TaskKind as TaskKind
from plimsoll_planner.revising.observed import ObservedStages
from plimsoll_planner.revising.revise import Stays


class TaskState(StrEnum):
    """State of a task."""

    PENDING = "pending"
    """It exists and does not run yet; `ObservedTask.message` says what it waits for."""
    RUNNING = "running"
    ENDED = "ended"


class Ending(StrEnum):
    """Ending of a task, by its exit codes and the reports of its back end."""

    DONE = "done"
    CHECKPOINTED = "checkpointed"
    """It was asked to stop, and saved."""
    OUT_OF_MEMORY = "out-of-memory"
    """Of the device."""
    ENTRY_POINT_OUT_OF_MEMORY = "entry-point-out-of-memory"
    """Of the device, by the entry point itself: under every plan."""
    HOST_OUT_OF_MEMORY = "host-out-of-memory"
    DISRUPTED = "disrupted"
    """Killed, evicted, or its machine is gone."""
    FOREIGN_FINGERPRINT = "foreign-fingerprint"
    """The code is not what was profiled."""
    BAD_WORKLOAD = "bad-workload"
    """The entry point breaks the contract."""
    INCOMPATIBLE = "incompatible"
    """Python, torch or numpy of its image are missing or too old."""
    UNUSABLE_CHECKPOINT = "unusable-checkpoint"
    """There is none to go on from: missing, broken, or of another training."""
    UNEQUAL_REPLICAS = "unequal-replicas"
    """Ranks that hold the same tensor built different values."""
    NO_LOSS = "no-loss"
    """The loss is not finite."""
    DEVICE_BUSY = "device-busy"
    """A rehearsal ran out of memory beside other processes."""
    APPLICATION_ERROR = "application-error"
    DELETED = "deleted"
    """By a person."""
    TIMED_OUT = "timed-out"
    NEVER_STARTED = "never-started"
    """It waited too long for its machines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedTask:
    """A task that runs or ran for a plan, and was not cleared away yet."""

    kind: TaskKind
    subject: str
    """A request key, a plan's digest, or an attempt's number."""
    state: TaskState
    since_s: float
    """Start of that state; seconds since 1970."""
    started_s: float = 0.0
    """Start of its run; 0 if it never ran."""
    ending: Ending | None = None
    """Given where it ended."""
    message: str = ""
    """Its root cause in one line, or what it waits for."""
    note: str = ""
    """A note about it for people, whatever its state."""
    stopping: str = ""
    """Reason for which it was asked to leave; it goes, whatever is wanted by now."""
    workload_name: str = ""
    """Of its Job on a cluster."""
    workload_uid: str = ""
    """Of its Job on a cluster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A plan of record: written once, before its worker group is started."""

    number: int
    plan_digest: str = ""
    """Of the plan of record."""
    problem_digest: str = ""
    """Of what was asked when it was planned."""
    asked_digest: str = ""
    """Of what the spec asked for then, see `asked_digest_of`; empty where a home takes
    no edits while an attempt is open."""
    recorded_s: float = 0.0
    """Seconds since 1970."""
    ending: Ending | None = None
    """Its end; None until that was written down."""
    ended_s: float = 0.0
    generation: int = 0
    """Of the spec when that was written down; 0 until then."""
    message: str = ""
    rank: int | None = None
    """Which rank ran out of memory, and in which phase."""
    phase: Phase | None = None


class RevisionState(StrEnum):
    """State of a revision of a plan that runs."""

    OFFERED = "offered"
    """Its ranks have not answered."""
    FOLLOWED = "followed"
    """All ranks run by it."""
    REFUSED = "refused"
    """They cannot; the plan before stays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRevision:
    """A plan in the place of the one that runs, and what became of it."""

    revision: Revision
    made_s: float
    """Seconds since 1970."""
    state: RevisionState = RevisionState.OFFERED
    settled_s: float = 0.0
    """Time at which the ranks had answered; since 1970."""
    num_steps: int = 0
    """Steps that were finished then."""
    moved_bytes: int = 0
    """Sent by all ranks."""
    moved_s: float = 0.0
    """Seconds for which training waited."""
    message: str = ""
    """Why it was refused."""

    @property
    def number(self) -> int:
        """Of the revision."""
        return self.revision.plan.revision


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningPlan:
    """The plan that the open attempt runs by, as its ranks report it."""

    plan: HybridPlan
    """Of the newest revision that all ranks follow."""
    limits: Limits
    """That it was planned with."""
    revisions: tuple[RecordedRevision, ...] = ()
    """Of the attempt, the oldest first."""
    unanswered: tuple[int, ...] = ()
    """Attempts before this one that ended with a revision on offer."""
    reports: tuple[Observation, ...] = ()
    """The latest of each rank."""
    stages: ObservedStages | None = None
    """As they are observed; None: nothing is known of them."""
    steps_left: int = 0
    again_s: float = 0.0
    """Time from which on the search may be asked again; since 1970."""
    answer: Revision | Stays | None = None
    """To the question of now; None: it was not asked."""
    stays: str = ""
    """Why the latest search left the plan as it is; empty where it has found another,
    or nothing was searched for this plan yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedProfile:
    """The profile in the store that answers the plan's request key."""

    source: str
    made_s: float
    """Seconds since 1970."""
    was_cached: bool
    """It was there before this plan was."""
    is_of_this_code: bool = True
    """False where the code or its libraries are known to have changed since."""
    has_batch_statistics: bool = False
    """Layers such as BatchNorm compute over a micro-batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedRehearsal:
    """Result of running the plan's fullest rank alone on a device."""

    fits: bool
    message: str
    """The rank's peak beside what was predicted, in one line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedAnswer:
    """Answer of the search to the problem as it is now, replays included."""

    answer: Solution | Infeasible
    problem_digest: str = ""
    """Of what was asked."""
    headline: str = ""
    """The answer in one line."""
    unreplayed: str = ""
    """Digest of a plan whose replay the search waits for."""
    has_replay: bool = False
    """That replay has come meanwhile: the search can go on."""
    is_certified: bool = False
    """The plan's replay holds what was predicted."""
    num_rounds: int = 0
    """Of search and replay."""
    plan_digest: str = ""
    """Of the plan, where a rehearsal of it is looked for."""
    rehearsal: ObservedRehearsal | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedState:
    """Everything that a decision looks at, besides spec and status."""

    complaint: str = ""
    """Missing things that the spec names, in one line; empty if none is missing."""
    remark: str = ""
    """A note about a spec that is good."""
    store_fault: str = ""
    """Why the store cannot be asked, in one line; empty where it answers."""
    has_device: bool = False
    """A device of the plan's kind is here, to rehearse a rank on."""
    profile: ObservedProfile | None = None
    profile_key: str = ""
    """Of the profile that the spec asks for."""
    answer: ObservedAnswer | None = None
    """Not looked for while an attempt is open."""
    refuted: str = ""
    """Which plan before that ran out of memory when rehearsed, and how."""
    attempts: tuple[Attempt, ...] = ()
    """All of them, the oldest first."""
    tasks: tuple[ObservedTask, ...] = ()
    running: RunningPlan | None = None
    """By which the latest attempt runs or ran; None: not known, or there is none."""
    observed: ObservedStatus | None = None
    """Memory and time that the ranks of the latest attempt have used so far."""
    checkpoints: CheckpointsStatus | None = None
    """Folder in which its ranks save; None: nothing is saved."""
    step_fault: str = ""
    """That its steps did not take what was predicted; empty where they did."""

    def task(self, kind: TaskKind, subject: str) -> ObservedTask | None:
        """One task, None if it does not exist."""
        return next(
            (t for t in self.tasks if (t.kind, t.subject) == (kind, subject)), None
        )
