"""Events: what `kubectl describe` shows of how a plan came to where it stands.

In: the status before and after a pass. Out: an Event for each condition that has become
True or False, and for each turn of the summary. They are written beside the passes, and
are lost where the API server is busy: nothing depends on them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from plimsoll_operator.api.reasons import REASONS
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.errors import ClusterError
from plimsoll_operator.kube.api import EVENTS, Api, Object
from plimsoll_operator.kube.times import stamp_of, utc_now
from plimsoll_operator.names import API_VERSION, GROUP, KIND
from plimsoll_operator.objects.manifests import Owner

logger = logging.getLogger(__name__)
MOST_WAITING: Final = 1000
LONGEST_NOTE: Final = 1024
QUIET: Final = ("Waiting", "Starting", "Ended")
"""Reasons that pass within a moment."""
BAD: Final = ("BackingOff", "PendingTimeout", "DeadlineExceeded")
"""Reasons that tell of a failure, also where the plan goes on after it."""


class EventWriter:
    """Writes Events, one after the other."""

    def __init__(self, api: Api, instance: str) -> None:
        """Write as one instance of the operator."""
        self._api = api
        self._instance = instance
        self._waiting: asyncio.Queue[Object] = asyncio.Queue(MOST_WAITING)

    def tell(self, owner: Owner, before: Status, after: Status) -> None:
        """Hand over what has changed; returns at once."""
        for said in turns(before, after):
            if not self._waiting.full():
                self._waiting.put_nowait(event_of(owner, said, self._instance))

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            made = await self._waiting.get()
            try:
                await self._api.create(EVENTS, made["metadata"]["namespace"], made)
            except ClusterError as error:
                logger.debug("an event is lost: %s", error)


def turns(before: Status, after: Status) -> Iterator[Condition]:
    """Yield the conditions that have taken a turn worth telling."""
    told: set[str] = set()
    for said in after.conditions:
        old = before.condition(said.type)
        has_moved = old is None or old.status is not said.status
        has_turned = has_moved or (old is not None and old.reason != said.reason)
        is_summary = said.type is ConditionType.SUCCEEDED
        repeats = is_summary and said.status is Truth.UNKNOWN and said.reason in told
        if said.reason in QUIET or repeats:
            continue
        if (is_summary and has_turned) or (
            has_moved and said.status is not Truth.UNKNOWN
        ):
            told.add(said.reason)
            yield said


def meaning_of(said: Condition) -> str:
    """Return what a reason tells a person, where there is no message."""
    for meanings in (REASONS.get(said.type, {}), *REASONS.values()):
        for truth in (said.status, *Truth):
            if (truth, said.reason) in meanings:
                return meanings[truth, said.reason]
    return f"{said.type} is {said.status}"


def event_of(owner: Owner, said: Condition, instance: str) -> Object:
    """The Event of a condition."""
    has_failed = said.status is Truth.FALSE and said.type is not ConditionType.LAUNCHED
    is_bad = has_failed or said.reason in BAD
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{owner.name}-", "namespace": owner.namespace},
        "eventTime": stamp_of(utc_now()),
        "reportingController": GROUP,
        "reportingInstance": instance,
        "action": said.type.value,
        "reason": said.reason,
        "note": (said.message or meaning_of(said))[:LONGEST_NOTE],
        "type": "Warning" if is_bad else "Normal",
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": owner.namespace,
            "name": owner.name,
            "uid": owner.uid,
        },
    }
