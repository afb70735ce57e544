"""Use of a rank, measured and reported by it; the last rung of the ladder of truth."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.records.bounds import Bytes, Count, Digest, Index, Seconds
from plimsoll_planner.records.device_overhead import OverheadKey
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.model_profile import DeviceKind, Fingerprint
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedPeak(Record):
    """Peak of one rank in one phase; the same three numbers that were predicted."""

    phase: Phase
    allocated_bytes: Bytes
    reserved_bytes: Bytes
    device_bytes: Bytes

    def check_rules(self) -> None:
        """Tensors lie inside what is reserved, and that inside the device's use."""
        if self.reserved_bytes < self.allocated_bytes:
            rule = f"at least the allocated {self.allocated_bytes} bytes"
            raise self.refuse("reserved_bytes", rule)
        if self.device_bytes < self.reserved_bytes:
            rule = f"at least the reserved {self.reserved_bytes} bytes"
            raise self.refuse("device_bytes", rule)


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation(Document):
    """One rank of one attempt."""

    plan_digest: Digest
    revision: Count
    attempt: Count
    rank: Index
    fingerprint: Fingerprint
    device_kind: DeviceKind
    overhead_key: OverheadKey
    """For which calibration the observation counts."""
    num_communicators: Index
    num_steps: Index
    """Steps that were finished when this was read."""
    step_s: tuple[Seconds, ...] = ()
    """Wall seconds of the latest finished steps, oldest first."""
    peaks: tuple[ObservedPeak, ...]

    def check_rules(self) -> None:
        """One peak for each phase."""
        self.require_distinct("peaks", (peak.phase for peak in self.peaks))
