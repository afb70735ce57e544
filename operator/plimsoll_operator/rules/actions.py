"""Actions of a decision. Each is safe to be asked for again after a crash.

An effect that was done already finds that and does nothing: tasks have names that
follow from plan and subject, and records are written once under their key.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedTask,
    RecordedRevision,
)
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.revision import Revision


@dataclass(frozen=True, kw_only=True, slots=True)
class StartProfile:
    """Start the task that profiles the workload."""

    request_key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreResult:
    """Base of the actions that put the result of a task into the store."""

    task: ObservedTask


class StoreProfile(StoreResult):
    """Put the profile that a task made into the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Solve:
    """Search, with the replays that are known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartReplay:
    """Start the task that replays the ranks of a plan."""

    digest: str


class StoreReplay(StoreResult):
    """Put what a replay found into the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRehearsal:
    """Start the task that runs the fullest rank of a plan alone on a device."""

    digest: str


class StoreRehearsal(StoreResult):
    """Put what a rehearsal found, and what it teaches, into the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordPlan:
    """Write down the plan of an attempt; if one is there already, that one counts."""

    attempt: int
    plan: HybridPlan
    problem_digest: str
    """Of what was asked."""
    asked_digest: str
    """Of what the spec asks for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartTraining:
    """Start the worker group of an attempt by its plan of record."""

    attempt: int
    memory_factor: int = 1
    """Multiple of the host memory that the spec asks for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StopTraining:
    """Ask the worker group to save and leave."""

    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordEnding:
    """Write down what became of an attempt, with what its ranks observed."""

    attempt: int
    task: ObservedTask
    ending: Ending


@dataclass(frozen=True, kw_only=True, slots=True)
class RevisionAction:
    """Base of the actions on revisions of a plan that runs."""


class Revise(RevisionAction):
    """Search for a plan in the place of the one that runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordRevision(RevisionAction):
    """Write down a revision; if one of its number is there already, that one counts."""

    attempt: int
    revision: Revision


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferRevision(RevisionAction):
    """Let the ranks have a revision that is written down."""

    attempt: int
    revision: Revision


@dataclass(frozen=True, kw_only=True, slots=True)
class SettleRevision(RevisionAction):
    """Write down what the ranks made of a revision."""

    attempt: int
    settled: RecordedRevision


@dataclass(frozen=True, kw_only=True, slots=True)
class Clear:
    """Remove a task whose result is written down."""

    task: ObservedTask


@dataclass(frozen=True, kw_only=True, slots=True)
class WakeAt:
    """Decide again at a time, if nothing happens before."""

    at_s: float


Action = (
    StartProfile
    | Solve
    | StartReplay
    | StartRehearsal
    | StoreResult
    | RecordPlan
    | StartTraining
    | StopTraining
    | RecordEnding
    | RevisionAction
    | Clear
    | WakeAt
)
