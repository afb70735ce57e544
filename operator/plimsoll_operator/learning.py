"""What attempts and rehearsals teach: peaks of ranks, and where memory was short.

In: what ranks observed, and how that ended. Out: rows in the store, and overheads
fitted anew. Called before an end or a rehearsal is written down; called again after a
crash, it finds what it has kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_operator.brain.seen import Ending
from plimsoll_operator.store.store import Store
from plimsoll_planner.observed_overhead import Shortage, unreported_shortage
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan, PhasePeak
from plimsoll_planner.records.problem import Limits
from plimsoll_planner.records.rehearsal import Rehearsal
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


async def learn_rehearsal(store: Store, found: Rehearsal, now_s: float) -> None:
    """Keep a rehearsal that was asked for, and what it teaches.

    A peak beside other processes teaches nothing, because theirs is part of it.

    Args:
        store: of the scope that asked.
        found: the result.
        now_s: seconds since 1970.

    Raises:
        StoreError: it was not kept.
    """
    seen = found.observation
    asked = await store.rehearsals.asked(seen.plan_digest)
    if asked is None:
        return  # forgotten meanwhile: it is asked for again where it is needed
    plan, teaches = asked.plan, not found.other_bytes
    uid = rehearsal_uid(store.rehearsals.scope, seen.plan_digest)
    peak = peak_of(plan, seen.rank)
    if teaches and found.fits:
        await store.observations.save(uid, seen, peak, plan.micro_batch, now_s)
    if teaches and found.full_device is not None:
        shortage = shortage_seen(
            plan, asked.capacity_bytes, seen, found.full_device.asked_bytes
        )
        if shortage.is_surprise:
            await store.shortages.save(uid, seen.attempt, shortage)
    if teaches:
        await store.calibrations.refresh(seen.overhead_key)
    await store.rehearsals.save(found)


def rehearsal_uid(scope: str, plan_digest: str) -> str:
    """What observations of a rehearsal are kept by, in place of a plan's uid."""
    return hashlib.sha256(f"{scope}/{plan_digest}".encode()).hexdigest()


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
    capacity_bytes = limits.usable_bytes(offer.device_memory_bytes)
    return shortage_seen(plan, capacity_bytes, observation, full.asked_bytes)


def shortage_seen(
    plan: HybridPlan, capacity_bytes: int, observation: Observation, asked_bytes: int
) -> Shortage:
    """What is learned from a rank that ran out and reported its peaks.

    Args:
        plan: with its prediction.
        capacity_bytes: that it was made for.
        observation: of the rank.
        asked_bytes: in vain; 0: unknown.
    """
    peak = peak_of(plan, observation.rank)
    return Shortage(
        key=observation.overhead_key,
        micro_batch=plan.micro_batch,
        num_communicators=observation.num_communicators,
        capacity_bytes=capacity_bytes,
        in_use_bytes=max(one.allocated_bytes for one in observation.peaks),
        asked_bytes=asked_bytes,
        predicted_allocated_bytes=peak.allocated.upper_bytes,
        predicted_device_bytes=peak.device.upper_bytes,
    )
