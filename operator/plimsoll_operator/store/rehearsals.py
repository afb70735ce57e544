"""Rehearsals: what was asked for, and what came of it, by the plan's digest.

A row is made when a rehearsal is asked for, with all that is needed to learn from it,
so that whoever takes the result in needs the store alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete

from plimsoll_operator.store.database import Database
from plimsoll_operator.store.documents import large_record_of, large_text_of
from plimsoll_operator.store.rows import RehearsalRow
from plimsoll_operator.store.uses import use
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.rehearsal import Rehearsal


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedRehearsal:
    """A plan whose fullest rank is to be rehearsed."""

    plan: HybridPlan
    capacity_bytes: int
    """Of a device, less the headroom: what the plan was made for."""


class Rehearsals:
    """One rehearsal of each plan, within a scope."""

    def __init__(self, database: Database, scope: str) -> None:
        """Work on a database, within a scope of it."""
        self._database = database
        self._scope = scope

    @property
    def scope(self) -> str:
        """Whose rehearsals these are."""
        return self._scope

    async def ask(self, asked: AskedRehearsal) -> None:
        """Keep what is asked for, unless it was asked for already."""
        key = self._key(digest_of(asked.plan))
        text, now_s = await large_text_of(asked.plan), self._database.clock()
        row = RehearsalRow(
            **key,
            used_s=now_s,
            device_product=asked.plan.offers[0].device_product,
            capacity_bytes=asked.capacity_bytes,
            plan=text,
        )
        async with self._database.write() as session:
            if await session.get(RehearsalRow, key) is None:
                session.add(row)

    async def asked(self, plan_digest: str) -> AskedRehearsal | None:
        """The rehearsal that was asked for of a plan; None: none was."""
        row = await self._row(plan_digest)
        if row is None:
            return None
        plan = await large_record_of(HybridPlan, row.plan)
        return AskedRehearsal(plan=plan, capacity_bytes=row.capacity_bytes)

    async def find(self, plan_digest: str) -> Rehearsal | None:
        """The result of a plan's rehearsal; None: there is none yet."""
        row = await self._row(plan_digest)
        if row is None or row.document is None:
            return None
        await use(self._database, row)
        return await large_record_of(Rehearsal, row.document)

    async def ran_out(self, plan_digest: str) -> bool:
        """Whether a plan's rehearsal ran out of device memory."""
        row = await self._row(plan_digest)
        return row is not None and row.fits is False

    async def save(self, rehearsal: Rehearsal) -> None:
        """Keep a result that was asked for; the first one of a plan wins."""
        key = self._key(rehearsal.observation.plan_digest)
        text = await large_text_of(rehearsal)
        async with self._database.write() as session:
            row = await session.get(RehearsalRow, key)
            if row is not None and row.document is None:
                row.document, row.fits = text, rehearsal.fits

    async def forget_failed(self, device_product: str) -> None:
        """Forget results of rehearsals that ran out of memory on devices of a kind."""
        mine = (
            RehearsalRow.scope == self._scope,
            RehearsalRow.device_product == device_product,
            RehearsalRow.fits.is_(False),
        )
        async with self._database.write() as session:
            await session.execute(delete(RehearsalRow).where(*mine))

    def _key(self, plan_digest: str) -> dict[str, str]:
        """Primary key of a plan's row."""
        return {"scope": self._scope, "plan_digest": plan_digest}

    async def _row(self, plan_digest: str) -> RehearsalRow | None:
        """Row of a plan."""
        async with self._database.read() as session:
            return await session.get(RehearsalRow, self._key(plan_digest))
