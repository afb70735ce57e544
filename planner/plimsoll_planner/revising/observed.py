"""The stages of a plan that runs, as its ranks report them.

In: a plan and the latest report of each rank. Out: `ObservedStages`. Called by whoever
decides whether to `revise`.

A stage is as slow as its slowest rank, for a step waits for all of them. Reports are
another tenant's word: seconds and bytes beyond bounds count as the bounds, and whatever
they state changes the plan of their own job alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.observation import (
    DEVIATION,
    Observation,
    of_plan,
    pace_of,
)
from plimsoll_planner.records.plan import HybridPlan, Stage
from plimsoll_planner.records.revision import Cause


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedStages:
    """Entries of each stage of a plan."""

    passes_s: tuple[float, ...]
    """Seconds in all passes of a step; 0: not known yet."""
    lacking_bytes: tuple[int, ...]
    """Bytes that a device lacks, beside those that were planned with, or that a rank
    took beyond its upper bound."""
    cause: Cause | None
    """Why the plan is looked at again; None: all is as planned."""


def observed_stages(
    plan: HybridPlan,
    limits: Limits,
    reports: Sequence[Observation],
    known_bytes: Sequence[int] = (),
) -> ObservedStages:
    """The stages of a plan; reports of its other revisions do not count.

    `known_bytes` its devices were found to lack before, stage by stage; empty: none.
    """
    of_rank = {one.rank: one for one in of_plan(plan, reports)}
    passes_s: list[float] = []
    lacking: list[int] = []
    causes: set[Cause] = set()
    before = tuple(known_bytes) or (0,) * len(plan.stages)
    for stage, known in zip(plan.stages, before, strict=True):
        mine = [of_rank[rank] for rank in stage.ranks if rank in of_rank]
        seen_s = passes_of(mine) if len(mine) == len(stage.ranks) else 0.0
        smaller = smaller_bytes(plan, limits, stage, mine)
        beyond = beyond_bytes(stage, mine)
        passes_s.append(seen_s)
        lacking.append(max(smaller + beyond, known))
        if smaller and not fits(plan, limits, stage, smaller):
            causes.add(Cause.CAPACITY)
        if beyond:
            causes.add(Cause.PEAK)
        if is_off(stage, seen_s):
            causes.add(Cause.PACE)
    order = (Cause.CAPACITY, Cause.PEAK, Cause.PACE)
    if 0.0 in passes_s:  # of some stages alone they would mislead
        passes_s = [0.0] * len(passes_s)
        causes -= {Cause.PACE}
    return ObservedStages(
        passes_s=tuple(passes_s),
        lacking_bytes=tuple(lacking),
        cause=next((one for one in order if one in causes), None),
    )


def passes_of(reports: Sequence[Observation]) -> float:
    """Seconds of the slowest of some ranks, 0 if one has not run enough steps."""
    paces_s = [pace_of(one.passes_s) for one in reports]
    known_s = [one for one in paces_s if one is not None]
    return max(known_s) if len(known_s) == len(paces_s) else 0.0


def is_off(stage: Stage, seen_s: float) -> bool:
    """Whether the passes of a stage took other seconds than planned."""
    if not seen_s or stage.passes is None:
        return False
    planned_s = stage.passes.expected_s
    return abs(seen_s - planned_s) > DEVIATION * planned_s


def smaller_bytes(
    plan: HybridPlan, limits: Limits, stage: Stage, reports: Sequence[Observation]
) -> int:
    """Bytes by which the smallest device of some ranks is smaller than offered."""
    offered = limits.usable_bytes(plan.offers[stage.offer].device_memory_bytes)
    seen = [limits.usable_bytes(r.capacity_bytes) for r in reports if r.capacity_bytes]
    return max(0, *(offered - one for one in seen)) if seen else 0


def beyond_bytes(stage: Stage, reports: Sequence[Observation]) -> int:
    """Bytes by which the fullest of some ranks was above the upper bound."""
    predicted = stage.peak()
    if predicted is None:
        return 0
    most = predicted.device.upper_bytes
    peaks = [peak.device_bytes for one in reports for peak in one.peaks]
    return max(0, *(found - most for found in peaks)) if peaks else 0


def fits(plan: HybridPlan, limits: Limits, stage: Stage, lacking_bytes: int) -> bool:
    """Whether the upper bound of a stage fits on devices that lack some bytes."""
    predicted = stage.peak()
    offered = limits.usable_bytes(plan.offers[stage.offer].device_memory_bytes)
    return predicted is None or (
        predicted.device.upper_bytes <= offered - lacking_bytes
    )
