"""Use of a rank, measured and reported by it; the last rung of the ladder of truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated

from plimsoll_planner.records.bounds import Bytes, Count, Digest, Index, Seconds, Text
from plimsoll_planner.records.device_overhead import OverheadKey
from plimsoll_planner.records.document import Document, digest_of
from plimsoll_planner.records.model_profile import DeviceKind, Fingerprint
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.record import Record

LONGEST_REFUSAL = 1024
"""Characters."""
Refusal = Annotated[str, Text(longest=LONGEST_REFUSAL)]
WINDOW_STEPS = 20
"""Latest steps whose median says how long a rank computes."""
DEVIATION = 0.1
"""Part of such seconds from which on others are news."""


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
    """Wall seconds of the latest finished steps of this plan, oldest first."""
    passes_s: tuple[Seconds, ...] = ()
    """Seconds of the rank in all passes of these steps, waits between them aside."""
    capacity_bytes: Bytes = 0
    """Of the device; 0: unlimited, or not known."""
    moved_step: Index = 0
    """Steps that were finished when the plan took the place of the one before."""
    moved_bytes: Bytes = 0
    """Sent and received by the rank then."""
    moved_s: Seconds = 0.0
    """Seconds of all ranks together until it had."""
    refused_revision: Index = 0
    """The latest that a rank refused; 0: none."""
    refusal: Refusal = ""
    """Why."""
    peaks: tuple[ObservedPeak, ...]

    def check_rules(self) -> None:
        """One peak for each phase."""
        self.require_distinct("peaks", (peak.phase for peak in self.peaks))


def of_plan(plan: HybridPlan, reports: Sequence[Observation]) -> list[Observation]:
    """Reports of ranks that run by a plan; those by another revision are left out."""
    digest = digest_of(plan)
    return [one for one in reports if one.plan_digest == digest]


def pace_of(passes_s: Sequence[float]) -> float | None:
    """Seconds of a rank's passes in its latest steps, None if those are too few."""
    if len(passes_s) < WINDOW_STEPS:
        return None
    return median(passes_s[-WINDOW_STEPS:])
