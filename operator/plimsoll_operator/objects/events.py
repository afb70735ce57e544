"""Events: what `kubectl describe` shows of how a plan came to where it stands.

In: the status before and after a pass. Out: an Event for each condition that has become
True or False, for each turn of the summary and of a revision. They are written beside
the passes, and are lost where the API server is busy: nothing depends on them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from plimsoll_operator.api.reasons import REASONS
from plimsoll_operator.api.status import (
    Condition,
    ConditionType,
    RevisionStatus,
    Status,
    Truth,
)
from plimsoll_operator.errors import ClusterError
from plimsoll_operator.kube.api import EVENTS, Api, Object
from plimsoll_operator.kube.times import stamp_of, utc_now
from plimsoll_operator.names import API_VERSION, GROUP, KIND
from plimsoll_operator.objects.manifests import Owner
from plimsoll_operator.rules.observed_state import RevisionState
from plimsoll_operator.rules.summary import revision_text

logger = logging.getLogger(__name__)
MOST_WAITING: Final = 1000
LONGEST_NOTE: Final = 1024
QUIET: Final = ("Waiting", "Starting", "Ended")
"""Reasons that pass within a moment."""
BAD: Final = ("BackingOff", "PendingTimeout", "DeadlineExceeded")
"""Reasons of a failure, also where the plan goes on after it."""


class EventWriter:
    """Writes Events, one after the other."""

    def __init__(self, api: Api, instance: str) -> None:
        """Write as one instance of the operator."""
        self._api = api
        self._instance = instance
        self._waiting: asyncio.Queue[Object] = asyncio.Queue(MOST_WAITING)

    def emit(self, owner: Owner, before: Status, after: Status) -> None:
        """Hand over what has changed; returns at once."""
        made = [
            event_of(owner, condition, self._instance)
            for condition in turns(before, after)
        ]
        made += [
            revision_event(owner, one, self._instance) for one in revised(before, after)
        ]
        for event in made:
            if not self._waiting.full():
                self._waiting.put_nowait(event)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            made = await self._waiting.get()
            try:
                await self._api.create(EVENTS, made["metadata"]["namespace"], made)
            except ClusterError as error:
                logger.debug("an event is lost: %s", error)


def turns(before: Status, after: Status) -> Iterator[Condition]:
    """Yield the conditions that have taken a turn worth an Event.

    One without a message has that of the summary if both have the same reason, such as
    the error that is waited out.
    """
    emitted: set[str] = set()
    summary = after.condition(ConditionType.SUCCEEDED)
    for condition in after.conditions:
        old = before.condition(condition.type)
        has_moved = old is None or old.status is not condition.status
        is_known = condition.status is not Truth.UNKNOWN
        if condition.type is ConditionType.SUCCEEDED:
            has_turned = old is None or has_moved or old.reason != condition.reason
            is_news = has_turned and (is_known or condition.reason not in emitted)
        else:
            is_news = has_moved and is_known
        if is_news and condition.reason not in QUIET:
            emitted.add(condition.reason)
            message = condition.message
            if summary is not None and summary.reason == condition.reason:
                message = message or summary.message
            yield replace(condition, message=message)


def revised(before: Status, after: Status) -> Iterator[RevisionStatus]:
    """Yield revisions that are new, or that ranks have answered."""
    known = {(one.revision, one.state, one.time) for one in before.revisions}
    for one in after.revisions:
        if (one.revision, one.state, one.time) not in known:
            yield one


def meaning_of(condition: Condition) -> str:
    """Meaning of a condition's reason, for a condition without a message."""
    for meanings in (REASONS.get(condition.type, {}), *REASONS.values()):
        for truth in (condition.status, *Truth):
            if (truth, condition.reason) in meanings:
                return meanings[truth, condition.reason]
    return f"{condition.type} is {condition.status}"


def event_of(owner: Owner, condition: Condition, instance: str) -> Object:
    """The Event of a condition."""
    has_failed = (
        condition.status is Truth.FALSE and condition.type is not ConditionType.LAUNCHED
    )
    is_bad = has_failed or condition.reason in BAD
    note = condition.message or meaning_of(condition)
    of = condition.type.value, condition.reason
    return made_event(owner, instance, *of, note, is_bad=is_bad)


def revision_event(owner: Owner, one: RevisionStatus, instance: str) -> Object:
    """The Event of a revision: `RevisionOffered`, and what ranks made of it."""
    is_bad = one.state == RevisionState.REFUSED
    reason = f"Revision{one.state.capitalize()}"
    note = revision_text(one)
    return made_event(owner, instance, "Revised", reason, note, is_bad=is_bad)


def made_event(
    owner: Owner,
    instance: str,
    action: str,
    reason: str,
    note: str,
    *,
    is_bad: bool,
) -> Object:
    """An Event about a plan."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{owner.name}-", "namespace": owner.namespace},
        "eventTime": stamp_of(utc_now()),
        "reportingController": GROUP,
        "reportingInstance": instance,
        "action": action,
        "reason": reason,
        "note": note[:LONGEST_NOTE],
        "type": "Warning" if is_bad else "Normal",
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": owner.namespace,
            "name": owner.name,
            "uid": owner.uid,
        },
    }
