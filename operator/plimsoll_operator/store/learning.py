"""Lessons of attempts and rehearsals: peaks of ranks, and shortages of memory.

In: what ranks observed, and how that ended. Out: rows in the store, and overheads
fitted anew. Called before an end or a rehearsal is written down; called again after a
crash, it finds what it has kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.store.rehearsals import AskedRehearsal
from plimsoll_operator.store.store import Store
from plimsoll_planner.overhead.observed import Shortage, unreported_shortage
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan, Phase, PhasePeak
from plimsoll_planner.records.rehearsal import MeasuredRank, Rehearsal
from plimsoll_planner.records.task import FullDevice


@dataclass(frozen=True, kw_only=True, slots=True)
class Lesson:
    """An attempt that has ended."""

    plan_uid: str
    attempt: int
    plan: HybridPlan
    """The plan that its ranks ran by, as it began or as it was revised."""
    limits: Limits
    """Of the search that made it."""
    observations: Sequence[Observation]
    """The latest of each rank that has reported."""
    full_device: FullDevice | None
    """The first rank that ran out of device memory."""
    ending: Ending


async def learn(store: Store, lesson: Lesson) -> None:
    """Keep what an attempt teaches; its observations are in the store already.

    Raises:
        StoreError: it was not kept.
    """
    keys = {one.overhead_key for one in lesson.observations}
    full = lesson.full_device
    # Layers on their way are in no formula of a plan, which says nothing of the plan.
    is_moving = full is not None and full.phase is Phase.MIGRATION
    if lesson.ending is Ending.OUT_OF_MEMORY and not is_moving:
        shortage = shortage_of(lesson)
        if shortage.is_surprise:
            await store.shortages.save(lesson.plan_uid, lesson.attempt, shortage)
            keys.add(shortage.key)
    for key in keys:
        await store.calibrations.refresh(key)


def peak_of(plan: HybridPlan, rank: int) -> PhasePeak:
    """The largest predicted peak of a rank."""
    peak = plan.stage_of(rank).peak()
    assert peak is not None  # noqa: S101 - a plan of record is one that was predicted
    return peak


async def learn_rehearsal(
    store: Store, plan_uid: str, found: Rehearsal, now_s: float
) -> None:
    """Keep a rehearsal that was asked for, and what it teaches; `now_s` is since 1970.

    A peak beside other processes teaches nothing, because theirs is part of it.

    Raises:
        StoreError: it was not kept.
    """
    seen = found.observation
    asked = await store.rehearsals.asked(plan_uid, seen.plan_digest)
    if asked is None:
        return  # the plan was deleted meanwhile
    if await store.rehearsals.find(plan_uid, seen.plan_digest) is not None:
        return  # the first result counts
    if not found.other_bytes:
        await learn_rank(store, rehearsal_uid(plan_uid, seen), asked, found, now_s)
    await store.rehearsals.save(plan_uid, found)


async def learn_rank(
    store: Store, uid: str, asked: AskedRehearsal, found: Rehearsal, now_s: float
) -> None:
    """Keep what a rehearsed rank held, or what it lacked."""
    seen, plan = found.observation, asked.plan
    if found.full_device is None:
        peak = peak_of(plan, seen.rank)
        await store.observations.save(uid, seen, peak, plan.micro_batch, now_s)
    else:
        asked_bytes = found.full_device.asked_bytes
        shortage = shortage_seen(plan, asked.capacity_bytes, seen, asked_bytes)
        if not shortage.is_surprise:
            return
        await store.shortages.save(uid, seen.attempt, shortage)
    await store.calibrations.refresh(seen.overhead_key)


async def learn_measured(store: Store, rank: MeasuredRank, now_s: float) -> None:
    """Keep a rank measured on a machine without a store; `now_s` is since 1970."""
    seen = rank.observation
    uid = rehearsal_uid("", seen)
    await store.observations.save(uid, seen, rank.predicted, rank.micro_batch, now_s)
    await store.calibrations.refresh(seen.overhead_key)


def rehearsal_uid(plan_uid: str, seen: Observation) -> str:
    """Key of a rehearsed rank in place of a plan's uid, apart from its attempts."""
    return hashlib.sha256(f"{plan_uid}/{seen.plan_digest}".encode()).hexdigest()


def shortage_of(lesson: Lesson) -> Shortage:
    """Shortage of the rank that ran out of device memory."""
    plan, limits, full = lesson.plan, lesson.limits, lesson.full_device
    if full is None:
        return unreported_shortage(plan, limits)
    reports = (
        one for one in lesson.observations if one.rank == full.rank and one.peaks
    )
    observation = next(reports, None)
    if observation is None:
        return unreported_shortage(plan, limits, full.rank)
    offer = plan.offers[plan.stage_of(full.rank).offer]
    capacity_bytes = limits.usable_bytes(offer.device_memory_bytes)
    return shortage_seen(plan, capacity_bytes, observation, full.asked_bytes)


def shortage_seen(
    plan: HybridPlan, capacity_bytes: int, observation: Observation, asked_bytes: int
) -> Shortage:
    """Shortage of a rank that reported its peaks; `asked_bytes` 0: unknown."""
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
