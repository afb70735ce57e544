"""The plan of an attempt, and whether it is over.

In: a reporter. Out: `Recorded`, or why the report comes too late. Called by `server`.
The plan of record of attempt N is the immutable ConfigMap `<plan>-plan-N`, its end
stands in `<plan>-result-N`; one that the plan does not own is none of ours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from plimsoll_operator.errors import RefusedReportError
from plimsoll_operator.ingest.identity import Asks, Reporter
from plimsoll_operator.kube.api import CONFIG_MAPS, Object
from plimsoll_operator.kube.ttl_cache import TtlCache
from plimsoll_operator.objects.manifests import PLAN_OF_RECORD, RESULT, object_name
from plimsoll_operator.objects.record_maps import ENDING, unpacked_plan
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.model_profile import DeviceKind, Fingerprint
from plimsoll_planner.records.plan import HybridPlan, PhasePeak

PLAN_KNOWN_S, ENDING_KNOWN_S = 600.0, 2.0
"""A plan of record never changes. An end counts at once, but for a burst of ranks."""
MOST_PLANS = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """Values of a plan of record that a proper report matches."""

    digest: str
    gpus_per_pod: int
    micro_batch: int
    device_kind: DeviceKind
    fingerprint: Fingerprint
    peaks: tuple[PhasePeak | None, ...]
    """By rank: the largest that was predicted."""


class RecordedAttempts:
    """Looks up attempts on the API server."""

    def __init__(
        self, api: Asks, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Ask an API server."""
        self._api = api
        self._plans = TtlCache[tuple[str, int], Recorded](
            most=MOST_PLANS, keep_s=lambda _: PLAN_KNOWN_S, clock=clock
        )
        self._endings = TtlCache[tuple[str, int], str](
            most=MOST_PLANS, keep_s=lambda _: ENDING_KNOWN_S, clock=clock
        )

    async def plan(self, reporter: Reporter) -> Recorded:
        """The plan of record of a reporter's attempt.

        Raises:
            RefusedReportError: 409: there is none.
            ClusterError: the API server cannot say.
        """
        key = reporter.plan_uid, reporter.attempt
        return await self._plans.get(key, lambda: self._plan(reporter))

    async def require_open(self, reporter: Reporter) -> None:
        """Refuse reports of an attempt once its end is decided.

        Raises:
            RefusedReportError: 409: it is over.
            ClusterError: the API server cannot say.
        """
        key = reporter.plan_uid, reporter.attempt
        ending = await self._endings.get(key, lambda: self._ending(reporter))
        if ending:
            raise RefusedReportError(
                HTTPStatus.CONFLICT,
                f"attempt {reporter.attempt} is over: it ended as {ending}",
            )

    async def _plan(self, reporter: Reporter) -> Recorded:
        """Read a plan of record.

        Raises:
            RefusedReportError: there is none, or it cannot be read.
        """
        found = await self._owned(reporter, PLAN_OF_RECORD)
        if found is None:
            raise no_plan(reporter, "it was deleted")
        try:
            return await asyncio.to_thread(recorded_in, found)
        except InvalidInputError as error:
            raise no_plan(reporter, str(error)) from None

    async def _ending(self, reporter: Reporter) -> str:
        """Ending of an attempt; empty until that is decided."""
        found = await self._owned(reporter, RESULT)
        meta: Any = {} if found is None else found["metadata"]
        annotations: Any = meta.get("annotations") or {}
        return str(annotations.get(ENDING, ""))

    async def _owned(self, reporter: Reporter, what: str) -> Object | None:
        """A ConfigMap of an attempt, None where the plan owns none."""
        name = object_name(reporter.owner, what, str(reporter.attempt))
        found = await self._api.get(CONFIG_MAPS, reporter.namespace, name)
        return found if found is not None and reporter.owner.owns(found) else None


def recorded_in(found: Object) -> Recorded:
    """Values that a proper report matches, out of a plan of record.

    Raises:
        InvalidInputError: it holds no plan.
    """
    return values_of(unpacked_plan(found))


def values_of(plan: HybridPlan) -> Recorded:
    """Values that a proper report on a plan matches."""
    peaks: list[PhasePeak | None] = [None] * plan.num_gpus
    for stage in plan.stages:
        peak = stage.peak()
        for rank in stage.ranks:
            peaks[rank] = peak
    return Recorded(
        digest=digest_of(plan),
        gpus_per_pod=plan.pods.gpus_per_pod,
        micro_batch=plan.micro_batch,
        device_kind=plan.offers[0].device_kind,
        fingerprint=plan.fingerprint,
        peaks=tuple(peaks),
    )


def no_plan(reporter: Reporter, why: str) -> RefusedReportError:
    """The answer to a report on an attempt without a plan."""
    return RefusedReportError(
        HTTPStatus.CONFLICT,
        f"attempt {reporter.attempt} of {reporter.plan_name} has no plan: {why}",
    )
