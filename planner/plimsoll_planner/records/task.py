"""Request to a task process, and the record of its life.

    task.json    before it is started
    began.json   by its supervisor, before the first process
    end.json     by its supervisor, after the last one

In: what the loop wants. Out: documents in the folder of the task, on one machine or in
a pod. A task without `began.json` does not exist yet; one without `end.json` runs, or
was killed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from plimsoll_planner.records.bounds import (
    Bytes,
    Count,
    Index,
    Label,
    Range,
    Seconds,
    Text,
)
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.record import Record

TASK, BEGAN, END = "task.json", "began.json", "end.json"
Word = Annotated[str, Text(longest=131_072, lines=True)]
Status = Annotated[int, Range(minimum=-64, maximum=255)]
Line = Annotated[str, Text(longest=1024)]


class TaskKind(StrEnum):
    """Kind of a task."""

    PROFILE = "profile"
    REPLAY = "replay"
    REHEARSAL = "rehearsal"
    TRAIN = "train"


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable(Record):
    """Of the environment."""

    name: Label
    value: Word


@dataclass(frozen=True, kw_only=True, slots=True)
class Command(Record):
    """One process."""

    words: tuple[Word, ...]
    variables: tuple[Variable, ...] = ()
    """On top of the supervisor's environment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(Document):
    """Purpose of a task: of one process, or of a worker group."""

    child_kind: TaskKind
    subject: Label
    commands: tuple[Command, ...]
    folder: Word
    """Working folder of the processes."""
    timeout_s: Seconds | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Began(Document):
    """A supervisor has begun."""

    pid: Count
    at_s: Seconds
    """Since 1970."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit(Record):
    """How one process ended."""

    status: Status
    """Its exit code, or minus the signal that ended it."""
    by_keeper: bool = False
    """The supervisor ended it, for others had failed or it took too long."""
    said: Line = ""
    """The last line that it wrote to stderr."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FullDevice(Record):
    """A rank that ran out of device memory."""

    rank: Index
    phase: Phase
    asked_bytes: Bytes
    """0 if it is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class End(Document):
    """All processes of a task have ended."""

    at_s: Seconds
    exits: tuple[Exit, ...]
    first: Index | None = None
    """Which process failed first."""
    was_stopped: bool = False
    """It was asked to save and leave."""
    was_late: bool = False
    host_was_full: bool = False
    """The kernel killed something for want of memory meanwhile."""
    message: Word = ""
    """The reason if a process could not even be started."""
    full_device: FullDevice | None = None
    """In a pod; on one machine it stands in the reports of the ranks."""
