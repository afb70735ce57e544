"""Rehearsals of each plan: what was asked for, and what came of it.

A row is made when a rehearsal is asked for, with all that is needed to learn from it,
so that whoever takes the result in needs the store alone. Nothing is taken over from an
earlier TrainingPlan: devices are not what they were.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import large_record_of, large_text_of
from plimsoll_operator.store.rows import RehearsalRow
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.rehearsal import Rehearsal


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedRehearsal:
    """A plan whose fullest rank is to be rehearsed."""

    plan: HybridPlan
    capacity_bytes: int
    """Of a device, less the headroom: what the plan was made for."""


class Rehearsals(Repository):
    """Rehearsals by the uid of a TrainingPlan and the digest of a plan of it."""

    async def ask(self, plan_uid: str, asked: AskedRehearsal) -> None:
        """Keep what is asked for, unless it was asked for already."""
        row = RehearsalRow(
            plan_uid=plan_uid,
            plan_digest=digest_of(asked.plan),
            capacity_bytes=asked.capacity_bytes,
            plan=await large_text_of(asked.plan),
        )
        await self._keep_first(row)

    async def asked(self, plan_uid: str, plan_digest: str) -> AskedRehearsal | None:
        """The rehearsal that was asked for; None: none was."""
        row = await self._row(RehearsalRow, plan_uid, plan_digest)
        if row is None:
            return None
        plan = await large_record_of(HybridPlan, row.plan)
        return AskedRehearsal(plan=plan, capacity_bytes=row.capacity_bytes)

    async def find(self, plan_uid: str, plan_digest: str) -> Rehearsal | None:
        """The result of a rehearsal; None: there is none yet."""
        row = await self._row(RehearsalRow, plan_uid, plan_digest)
        if row is None or row.document is None:
            return None
        return await large_record_of(Rehearsal, row.document)

    async def ran_out(self, plan_uid: str, plan_digest: str) -> bool:
        """Whether a rehearsal ran out of device memory."""
        row = await self._row(RehearsalRow, plan_uid, plan_digest)
        return row is not None and row.fits is False

    async def save(self, plan_uid: str, rehearsal: Rehearsal) -> None:
        """Keep a result that was asked for; the first one wins."""
        key = plan_uid, rehearsal.observation.plan_digest
        text = await large_text_of(rehearsal)
        async with self._database.write() as session:
            row = await session.get(RehearsalRow, key)
            if row is not None and row.document is None:
                row.document, row.fits = text, rehearsal.fits
