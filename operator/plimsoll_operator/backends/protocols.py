"""Launchers of the tasks of a plan, and records of its attempts.

In: what the executor wants of one plan. Out: the effect. Each may be wanted again, also
after a crash in the middle of it: what was done is found, and left as it is.

    Backend          processes (`backends.local.backend`), pods (`backends.pod_backend`)
    AttemptRecords   rows of the store (`backends.local.backend`), ConfigMaps
                     (`objects.record_maps`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from plimsoll_operator.backends.commands import Where
from plimsoll_operator.rules.actions import RecordPlan
from plimsoll_operator.rules.observed_state import (
    Attempt,
    ObservedTask,
    RecordedRevision,
    TaskKind,
)
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.replay import Replay
from plimsoll_planner.records.revision import Revision
from plimsoll_planner.records.task import FullDevice, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRequest:
    """A task that is to be started, and what it needs."""

    task: Task
    """Also its kind and subject."""
    devices: Offer | HybridPlan | None = None
    """One of an offer, or all of a plan."""
    inputs: Mapping[str, Document] = field(default_factory=dict[str, Document])
    """Documents that it reads, by name."""
    memory_factor: int = 1
    """Multiple of the host memory that the spec asks for."""
    after_s: float
    """Its result is later than this; seconds since 1970."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptReports:
    """Reports of the ranks of an attempt, as far as they are not in the store."""

    observations: Sequence[Observation] = ()
    full_device: FullDevice | None = None
    """The first rank that ran out of device memory; never in the store."""


TaskResult = ModelProfile | Replay | Rehearsal


class Backend(Protocol):
    """Launches the tasks of one plan."""

    def where(self, kind: TaskKind, subject: str) -> Where:
        """The place in which a task runs."""
        ...

    async def start(self, request: TaskRequest) -> None:
        """Make a task, unless it is there."""

    async def stop(self, attempt: int) -> None:
        """Ask the ranks of an attempt to save and leave."""

    async def offer(self, attempt: int, revision: Revision) -> None:
        """Let the ranks of an attempt have a revision of their plan."""

    async def clear(self, task: ObservedTask) -> None:
        """End a task and remove it."""

    async def result(self, task: ObservedTask) -> TaskResult | None:
        """Result of a task that is done; None: tasks store theirs themselves."""

    async def reports(self, attempt: int) -> AttemptReports:
        """Reports of the ranks of an attempt."""
        ...


class AttemptRecords(Protocol):
    """Attempts of one plan, as they are written down; what stands there stays."""

    async def plan(self, attempt: Attempt) -> HybridPlan:
        """The plan of record of an attempt."""
        ...

    async def begin(self, action: RecordPlan, now_s: float) -> None:
        """Write down by which plan an attempt trains."""

    async def end(
        self,
        ended: Attempt,
        observed: Sequence[Observation],
        revisions: Sequence[RecordedRevision],
    ) -> None:
        """Write down what became of an attempt."""
