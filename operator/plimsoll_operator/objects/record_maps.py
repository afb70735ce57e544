"""Attempts as ConfigMaps: the plan of record, and what became of it.

In: metadata of ConfigMaps. Out: the attempts of a plan. What a decision looks at stands
in annotations, so that a look fetches no plans; plans are read when they are needed,
and kept, for they never change. Called by observers, the executor and ingest.
"""

from __future__ import annotations

import asyncio
import base64
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from plimsoll_operator.errors import ClusterError, NameConflictError, TooLargeError
from plimsoll_operator.kube.api import CONFIG_MAPS, Api, Object
from plimsoll_operator.kube.ttl_cache import TtlCache
from plimsoll_operator.names import ATTEMPT_LABEL, GROUP, TASK_LABEL
from plimsoll_operator.objects.bounded import bounded_document, inflated
from plimsoll_operator.objects.manifests import (
    PLAN_OF_RECORD,
    RESULT,
    Owner,
    config_map,
    object_name,
    packed,
    packed_key,
)
from plimsoll_operator.objects.name_conflicts import NameConflicts
from plimsoll_operator.objects.owned_objects import OwnedObjects
from plimsoll_operator.objects.page_maps import LEFT_OUT, REPORTS
from plimsoll_operator.objects.rank_reports import RankReports, rank_reports
from plimsoll_operator.rules.actions import RecordPlan
from plimsoll_operator.rules.observed_state import Attempt, Ending, RecordedRevision
from plimsoll_planner.errors import InvalidInputError, UnreadableError
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan, Phase

PLAN_KEY: Final = packed_key("plan")
"""Of a plan of record: where the plan lies in it."""
ENDING: Final = f"{GROUP}/ending"
"""On a result: how the attempt ended."""
MOST_PLANS: Final = 256
"""Kept at a time: those of jobs that report something now."""
MOST_PLAN_BYTES: Final = 8 * 2**20
"""Of a plan, unpacked: one of 65,536 ranks is smaller."""


def note(name: str) -> str:
    """The annotation of a fact."""
    return f"{GROUP}/{name}"


def plan_map(owner: Owner, action: RecordPlan, now_s: float) -> Object:
    """The plan of record of an attempt.

    Raises:
        TooLargeError: it does not go into a ConfigMap.
    """
    notes = {
        note("plan-digest"): digest_of(action.plan),
        note("problem-digest"): action.problem_digest,
        note("asked-digest"): action.asked_digest,
        note("recorded"): repr(now_s),
    }
    data = packed(plan=action.plan)
    return config_map(owner, PLAN_OF_RECORD, str(action.attempt), data, **notes)


def result_map(owner: Owner, ended: Attempt, reports: RankReports) -> Object:
    """The ending of an attempt, with what its ranks reported.

    Reports of too many ranks are left out: the store has them.
    """
    notes = {
        ENDING: str(ended.ending),
        note("ended"): repr(ended.ended_s),
        note("generation"): str(ended.generation),
        note("message"): ended.message,
    }
    if ended.rank is not None and ended.phase is not None:
        notes |= {note("rank"): str(ended.rank), note("phase"): ended.phase.value}
    try:
        data = packed(**{REPORTS: reports})
    except TooLargeError as error:
        data, notes = {}, notes | {LEFT_OUT: str(error)}
    return config_map(owner, RESULT, str(ended.number), data, **notes)


def attempts_in(maps: Iterable[Object]) -> tuple[Attempt, ...]:
    """The attempts in the ConfigMaps of a plan, the oldest first.

    Raises:
        ClusterError: somebody has changed what they hold.
    """
    plans: dict[int, Mapping[str, str]] = {}
    results: dict[int, Mapping[str, str]] = {}
    for found in maps:
        labels = found["metadata"].get("labels", {})
        of_kind = {PLAN_OF_RECORD: plans, RESULT: results}.get(labels.get(TASK_LABEL))
        number = str(labels.get(ATTEMPT_LABEL, ""))
        if of_kind is not None and number.isdecimal():
            of_kind[int(number)] = found["metadata"].get("annotations") or {}
    return tuple(
        attempt_of(number, plans[number], results.get(number))
        for number in sorted(plans)
    )


def attempt_of(
    number: int, recorded: Mapping[str, str], ended: Mapping[str, str] | None
) -> Attempt:
    """An attempt, from the annotations of its ConfigMaps.

    Raises:
        ClusterError: somebody has changed them.
    """
    try:
        begun = Attempt(
            number=number,
            plan_digest=recorded.get(note("plan-digest"), ""),
            problem_digest=recorded.get(note("problem-digest"), ""),
            asked_digest=recorded.get(note("asked-digest"), ""),
            recorded_s=float(recorded.get(note("recorded"), 0)),
        )
        return begun if ended is None else with_ending(begun, ended)
    except (KeyError, ValueError) as error:
        raise ClusterError(
            f"attempt {number}: the annotations of its ConfigMaps were changed "
            f"({type(error).__name__}: {error}); restore them, or delete the plan"
        ) from None


def with_ending(begun: Attempt, ended: Mapping[str, str]) -> Attempt:
    """An attempt with its end, from the annotations of its result.

    Raises:
        KeyError, ValueError: they were changed.
    """
    rank, phase = ended.get(note("rank")), ended.get(note("phase"))
    return replace(
        begun,
        ending=Ending(ended[ENDING]),
        ended_s=float(ended[note("ended")]),
        generation=int(ended[note("generation")]),
        message=ended.get(note("message"), ""),
        rank=None if rank is None else int(rank),
        phase=None if phase is None else Phase(phase),
    )


class PlansOfRecord:
    """Plans of record, the latest ones that were asked for kept."""

    def __init__(self, api: Api) -> None:
        """Read from an API server."""
        self._objects = OwnedObjects(api)
        self._kept = TtlCache[tuple[str, str], HybridPlan | None](
            most=MOST_PLANS,
            keep_s=lambda plan: -math.inf if plan is None else math.inf,
            clock=time.monotonic,
        )
        """By the plan's uid and digest: what a digest stands for never changes."""

    async def find(self, owner: Owner, attempt: Attempt) -> HybridPlan | None:
        """The plan of an attempt, None if somebody has deleted it.

        Raises:
            ClusterError: it cannot be read.
        """
        key = owner.uid, attempt.plan_digest
        return await self._kept.get(key, lambda: self._read(owner, attempt))

    async def _read(self, owner: Owner, attempt: Attempt) -> HybridPlan | None:
        """The same, from its ConfigMap."""
        name = object_name(owner, PLAN_OF_RECORD, str(attempt.number))
        found = await self._objects.find(CONFIG_MAPS, owner, name)
        return None if found is None else await asyncio.to_thread(plan_in, found)


@dataclass(frozen=True, kw_only=True, slots=True)
class MapRecords:
    """Attempts of one plan, for the executor."""

    owner: Owner
    objects: OwnedObjects
    plans: PlansOfRecord
    name_conflicts: NameConflicts

    async def plan(self, attempt: Attempt) -> HybridPlan:
        """The plan of record of an attempt.

        Raises:
            ClusterError: somebody has deleted it.
        """
        found = await self.plans.find(self.owner, attempt)
        if found is None:
            name = object_name(self.owner, PLAN_OF_RECORD, str(attempt.number))
            raise ClusterError(f"ConfigMap {name}, the plan of record, is gone")
        return found

    async def begin(self, action: RecordPlan, now_s: float) -> None:
        """Write down by which plan an attempt trains.

        Raises:
            TooLargeError: the plan does not go into a ConfigMap.
        """
        made = await asyncio.to_thread(plan_map, self.owner, action, now_s)
        try:
            await self.objects.create(CONFIG_MAPS, self.owner, made)
        except NameConflictError as met:
            self.name_conflicts.meet(self.owner, met, now_s)

    async def end(
        self,
        ended: Attempt,
        observed: Sequence[Observation],
        revisions: Sequence[RecordedRevision],
    ) -> None:
        """Write down what became of an attempt.

        Raises:
            NameConflictError: the attempt stays open until there is room for its end.
        """
        reports = rank_reports(observed, revisions)
        made = await asyncio.to_thread(result_map, self.owner, ended, reports)
        await self.objects.create(CONFIG_MAPS, self.owner, made)


def plan_in(found: Mapping[str, Any]) -> HybridPlan:
    """The plan that a ConfigMap holds.

    Raises:
        ClusterError: it holds none that this release can read.
    """
    try:
        return unpacked_plan(found)
    except InvalidInputError as error:
        name = found["metadata"]["name"]
        text = f"ConfigMap {name} holds no plan of record: {error}"
        raise ClusterError(text) from None


def unpacked_plan(found: Mapping[str, Any]) -> HybridPlan:
    """The plan that a ConfigMap holds, whoever made it.

    Raises:
        InvalidInputError: it holds none that this release can read.
    """
    data: Object = found.get("binaryData") or {}
    text = data.get(PLAN_KEY)
    if text is None:
        raise UnreadableError(f"there is no {PLAN_KEY} in it")
    try:
        small = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise UnreadableError(f"{PLAN_KEY}: no base64: {error}") from None
    return bounded_document(inflated(small, MOST_PLAN_BYTES), HybridPlan)
