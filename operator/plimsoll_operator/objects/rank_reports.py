"""Reports of the ranks of an attempt, as one document of a ConfigMap.

In: observations, and revisions as they are recorded. Out: a `RankReports`, and back.
Packed together, for they repeat each other: 64 ranks take a tenth of the bytes that 64
documents would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_operator.rules.observed_state import RecordedRevision, RevisionState
from plimsoll_planner.records.bounds import Bytes, Index, Message, Seconds
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.record import Record
from plimsoll_planner.records.revision import Revision


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportedRevision(Record):
    """A revision and what ranks made of it; the fields of `RecordedRevision`."""

    revision: Revision
    made_s: Seconds
    state: RevisionState
    settled_s: Seconds
    num_steps: Index
    moved_bytes: Bytes
    moved_s: Seconds
    message: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class RankReports(Document):
    """Reports of the ranks of one attempt."""

    observations: tuple[Observation, ...]
    """The latest of each rank that has reported."""
    revisions: tuple[ReportedRevision, ...] = ()
    """Of the attempt's plan, the oldest first."""

    @property
    def recorded(self) -> tuple[RecordedRevision, ...]:
        """The revisions as the rules read them."""
        return tuple(
            RecordedRevision(
                revision=one.revision,
                made_s=one.made_s,
                state=one.state,
                settled_s=one.settled_s,
                num_steps=one.num_steps,
                moved_bytes=one.moved_bytes,
                moved_s=one.moved_s,
                message=one.message,
            )
            for one in self.revisions
        )


def rank_reports(
    observed: Sequence[Observation], revisions: Sequence[RecordedRevision]
) -> RankReports:
    """The document of what is known of ranks."""
    return RankReports(
        observations=tuple(observed),
        revisions=tuple(
            ReportedRevision(
                revision=one.revision,
                made_s=one.made_s,
                state=one.state,
                settled_s=one.settled_s,
                num_steps=one.num_steps,
                moved_bytes=one.moved_bytes,
                moved_s=one.moved_s,
                message=one.message,
            )
            for one in revisions
        ),
    )
