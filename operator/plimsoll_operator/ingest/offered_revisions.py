"""Revisions of the plans whose pods report.

In: an observation. Out: the values that it has to match if its rank runs by a revision;
and the revision that its pod is to be given. Called by `server`.
"""

from __future__ import annotations

from plimsoll_operator.ingest.identity import Reporter
from plimsoll_operator.ingest.recorded_attempts import Recorded, values_of
from plimsoll_operator.rules.observed_state import RevisionState
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.revision import Revision


class OfferedRevisions:
    """Looks revisions up in the store."""

    def __init__(self, store: Store) -> None:
        """Look into a store."""
        self._store = store

    async def recorded(
        self, reporter: Reporter, of_record: Recorded, digest: str
    ) -> Recorded:
        """Values of the plan with a digest, those of record if it is no revision."""
        if digest == of_record.digest:
            return of_record
        key = reporter.plan_uid, reporter.attempt
        for one in await self._store.revisions.known(*key):
            if one.plan_digest == digest:
                found = await self._store.revisions.find(*key, one.number)
                return of_record if found is None else values_of(found.plan)
        return of_record

    async def offered_to(
        self, reporter: Reporter, observation: Observation
    ) -> Revision | None:
        """The revision that ranks are to follow, unless this one has answered."""
        key = reporter.plan_uid, reporter.attempt
        for one in await self._store.revisions.known(*key):
            has_answered = one.number in {
                observation.revision,
                observation.refused_revision,
            }
            if one.state is RevisionState.OFFERED and not has_answered:
                return await self._store.revisions.find(*key, one.number)
        return None
