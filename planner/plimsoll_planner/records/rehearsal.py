"""Result of rehearsing one rank of a plan: the third rung of the ladder of truth.

The rank ran its real stage, schedule and optimizer with real tensors on one device, in
a process group without other members. It held all that a rank holds but communicators.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.records.bounds import Bytes, Count
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import PhasePeak
from plimsoll_planner.records.record import Record
from plimsoll_planner.records.task import FullDevice


@dataclass(frozen=True, kw_only=True, slots=True)
class Rehearsal(Document):
    """One rank of one plan; out of memory is a verdict, not an error."""

    observation: Observation
    """Peaks by phase and seconds of the steps that it finished, as attempt 1. It talks
    in no group, and its steps wait for no other rank."""
    capacity_bytes: Bytes
    """Of the device; 0: unlimited."""
    other_bytes: Bytes | None = None
    """In use by other processes when the rehearsal began; None: unknown."""
    full_device: FullDevice | None = None
    """The moment at which the rank ran out of device memory; None: it fits."""

    def check_rules(self) -> None:
        """The rank that ran out is the one that was rehearsed, alone and seen."""
        seen, full = self.observation, self.full_device
        if seen.attempt != 1:
            rule = "1: it is of no attempt"
            raise self.refuse("observation.attempt", rule, seen.attempt)
        if full is not None and full.rank != seen.rank:
            raise self.refuse("full_device.rank", f"{seen.rank}", full.rank)
        if full is not None and self.other_bytes:
            rule = "0 or unknown where the rank ran out: else it is no verdict"
            raise self.refuse("other_bytes", rule)
        if seen.num_communicators:
            rule = "0: a rehearsed rank talks in no group"
            raise self.refuse(
                "observation.num_communicators", rule, seen.num_communicators
            )
        if not seen.peaks:
            raise self.refuse("observation.peaks", "at least one peak", ())

    @property
    def fits(self) -> bool:
        """Whether the rank ran all its steps."""
        return self.full_device is None

    @property
    def device_bytes(self) -> int:
        """Most of the device that was in use, over all phases."""
        return max(peak.device_bytes for peak in self.observation.peaks)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRank(Record):
    """A rehearsed rank that fits, with all that a calibration needs of its plan."""

    observation: Observation
    predicted: PhasePeak
    """Largest of the rank."""
    micro_batch: Count
    """Samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRanks(Document):
    """Ranks that a machine without a store has measured, as `make gpu` does."""

    ranks: tuple[MeasuredRank, ...]
