"""Ends of pods, as they reported them: a stopped pod is gone before it is observed."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import record_of
from plimsoll_operator.store.rows import PodEndRow
from plimsoll_planner.records.document import canonical_text
from plimsoll_planner.records.task import End


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredEnd:
    """The end of all processes of a pod."""

    place: int
    """Index of the pod in its worker group."""
    end: End


class PodEnds(Repository):
    """One end of each pod of each attempt."""

    async def save(
        self, plan_uid: str, attempt: int, place: int, pod_uid: str, end: End
    ) -> None:
        """Keep the report of a pod; the first end of a pod wins."""
        row = PodEndRow(
            plan_uid=plan_uid,
            attempt=attempt,
            pod_uid=pod_uid,
            place=place,
            document=canonical_text(end),
        )
        await self._keep_first(row)

    async def of(self, plan_uid: str, attempt: int) -> dict[str, StoredEnd]:
        """Reported ends of the pods of an attempt, by their uids.

        The one that ended first comes first, by the clocks of the pods, and of those
        that ended at once the one with the smaller uid. So of pods in one place, where
        a preempted one got a successor, the last one reports how the place ended.
        """
        wanted = select(PodEndRow).where(
            PodEndRow.plan_uid == plan_uid, PodEndRow.attempt == attempt
        )
        rows = await self._all(wanted)
        ends = {
            row.pod_uid: StoredEnd(place=row.place, end=record_of(End, row.document))
            for row in rows
        }
        return dict(sorted(ends.items(), key=lambda one: (one[1].end.at_s, one[0])))
