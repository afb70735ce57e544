"""What an attempt teaches: peaks of its ranks, and where memory was short.

In: what the ranks observed, and how the attempt ended. Out: rows in the store, and
overheads fitted anew. Called by the hands of both homes, before an end is written down;
asked again after a crash, it finds what it has kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_operator.brain.seen import Ending
from plimsoll_operator.store.store import Store
from plimsoll_planner.observed_overhead import Shortage, unreported_shortage
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan, PhasePeak
from plimsoll_planner.records.problem import Limits
from plimsoll_planner.records.task import FullDevice


@dataclass(frozen=True, kw_only=True, slots=True)
class Lesson:
    """An attempt that has ended."""

    plan_uid: str
    attempt: int
    plan: HybridPlan
    """Of record."""
    limits: Limits
    """Of the search that made it."""
    observations: Sequence[Observation]
    """The latest of each rank that has told."""
    full_device: FullDevice | None
    """The first rank that ran out of device memory."""
    ending: Ending


async def learn(store: Store, lesson: Lesson) -> None:
    """Keep what an attempt teaches; its observations are in the store already.

    Raises:
        StoreError: it was not kept.
    """
    keys = {one.overhead_key for one in lesson.observations}
    if lesson.ending is Ending.OUT_OF_MEMORY:
        shortage = shortage_of(lesson)
        if shortage.is_surprise:
            await store.shortages.save(lesson.plan_uid, lesson.attempt, shortage)
            keys.add(shortage.key)
    for key in keys:
        await store.calibrations.refresh(key)


def peak_of(plan: HybridPlan, rank: int) -> PhasePeak:
    """Return the largest predicted peak of a rank."""
    peak = plan.stage_of(rank).peak()
    assert peak is not None  # noqa: S101 - a plan of record is one that was predicted
    return peak


def shortage_of(lesson: Lesson) -> Shortage:
    """Return what is learned from a rank that ran out of device memory."""
    plan, limits, full = lesson.plan, lesson.limits, lesson.full_device
    if full is None:
        return unreported_shortage(plan, limits)
    told = (one for one in lesson.observations if one.rank == full.rank and one.peaks)
    observation = next(told, None)
    if observation is None:
        return unreported_shortage(plan, limits, full.rank)
    offer = plan.offers[plan.stage_of(full.rank).offer]
    peak = peak_of(plan, full.rank)
    return Shortage(
        key=observation.overhead_key,
        micro_batch=plan.micro_batch,
        num_communicators=observation.num_communicators,
        capacity_bytes=limits.usable_bytes(offer.device_memory_bytes),
        in_use_bytes=max(one.allocated_bytes for one in observation.peaks),
        asked_bytes=full.asked_bytes,
        predicted_allocated_bytes=peak.allocated.upper_bytes,
        predicted_device_bytes=peak.device.upper_bytes,
    )
