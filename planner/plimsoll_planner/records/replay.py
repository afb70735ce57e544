"""Result of replaying a plan's ranks: the second rung of the ladder of truth."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.records.bounds import Bytes, Digest, Index, Name
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedPeak(Record):
    """Peak of tensors in one phase of a steady step."""

    phase: Phase
    allocated_bytes: Bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedStage(Record):
    """One stage; its ranks are alike, so one of them was replayed."""

    stage: Index
    peaks: tuple[ReplayedPeak, ...]

    def check_rules(self) -> None:
        """One peak for each phase, and at least one."""
        if not self.peaks:
            raise self.refuse("peaks", "at least one phase")
        self.require_distinct("peaks", (peak.phase for peak in self.peaks))

    @property
    def peak_bytes(self) -> int:
        """Largest over the phases."""
        return max(peak.allocated_bytes for peak in self.peaks)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay(Document):
    """Every stage of one plan, with torch's own schedule and no data."""

    plan_digest: Digest
    torch_version: Name
    stages: tuple[ReplayedStage, ...]

    def check_rules(self) -> None:
        """Stages stand in order."""
        places = [stage.stage for stage in self.stages]
        if places != list(range(len(places))):
            raise self.refuse("stages", "every stage from 0 on, in order", places)
