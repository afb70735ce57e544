"""The TrainingPlans of this machine; on a cluster the API server keeps them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import Status
from plimsoll_operator.errors import StoreError
from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import record_of
from plimsoll_operator.store.rows import AttemptRow, PlanRow, QuestionRow, RehearsalRow
from plimsoll_planner.records.document import canonical_text
from plimsoll_planner.records.offer import Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPlan:
    """A TrainingPlan."""

    uid: str
    name: str
    generation: int
    """Counts the edits of spec and offers, and how often it was opened again, from 1
    on."""
    spec: TrainingPlanSpec
    status: Status
    offers: tuple[Offer, ...]
    """The machines it may use, as they were when it began: what is free on this one
    changes by the minute."""
    folder: str
    """Folder of the workload's code."""
    created_s: float
    is_suspended: bool
    """A person asked for it, whatever the spec says."""
    was_told: bool
    """A person has seen how it ended."""


class Plans(Repository):
    """All plans; of those with one name the latest is the current one."""

    async def find(self, name: str) -> StoredPlan | None:
        """The current plan of a name."""
        async with self._database.read() as session:
            row = await current(session, name)
        return None if row is None else plan_of(row)

    async def all(self) -> tuple[StoredPlan, ...]:
        """The current plan of every name, the newest first."""
        wanted = (
            select(PlanRow)
            .where(PlanRow.current_name.is_not(None))
            .order_by(PlanRow.created_s.desc(), PlanRow.name)
        )
        return tuple(map(plan_of, await self._all(wanted)))

    async def create(
        self,
        name: str,
        spec: TrainingPlanSpec,
        offers: Sequence[Offer],
        folder: str,
        now_s: float,
    ) -> StoredPlan:
        """Begin a plan; an earlier one of the name stays, and is current no more."""
        row = PlanRow(
            uid=uuid.uuid4().hex,
            name=name,
            current_name=name,
            generation=1,
            created_s=now_s,
            is_suspended=False,
            was_told=False,
            folder=folder,
            spec=canonical_text(spec),
            status=canonical_text(Status()),
            offers=[offer.to_json() for offer in offers],
        )
        async with self._database.write() as session:
            before = await current(session, name)
            if before is not None:
                before.current_name = None
                await session.flush()
            session.add(row)
        return plan_of(row)

    async def edit(
        self, uid: str, spec: TrainingPlanSpec, offers: Sequence[Offer], folder: str
    ) -> StoredPlan:
        """Take what a person asks for now; another question is another generation.

        Raises:
            StoreError: there is no such plan.
        """
        async with self._database.write() as session:
            row = await existing(session, uid)
            asked = canonical_text(spec), [offer.to_json() for offer in offers]
            if (row.spec, row.offers) != asked:
                row.generation += 1
            row.spec, row.offers = asked
            row.folder = folder
        return plan_of(row)

    async def open_again(self, uid: str) -> StoredPlan:
        """Let a plan that is over go on, as another generation of it.

        Raises:
            StoreError: there is no such plan.
        """
        async with self._database.write() as session:
            row = await existing(session, uid)
            row.generation += 1
            began = record_of(Status, row.status).start_time
            row.status = canonical_text(Status(start_time=began))
            row.was_told = False
        return plan_of(row)

    async def save_status(self, uid: str, status: Status) -> None:
        """Keep where a plan stands, if there still is one."""
        await self._set(uid, status=canonical_text(status))

    async def set_suspended(self, uid: str, is_suspended: bool) -> None:
        """Write down that a person stops a plan, or lets it go on."""
        await self._set(uid, is_suspended=is_suspended)

    async def set_told(self, uid: str) -> None:
        """Write down that a person has seen how a plan ended."""
        await self._set(uid, was_told=True)

    async def _set(self, uid: str, **values: object) -> None:
        """Change columns of a plan, if there still is one."""
        await self._execute(update(PlanRow).where(PlanRow.uid == uid).values(values))

    async def of_name(self, name: str) -> tuple[StoredPlan, ...]:
        """All plans of a name, also those that are not current."""
        wanted = select(PlanRow).where(PlanRow.name == name)
        return tuple(map(plan_of, await self._all(wanted)))

    async def delete(self, name: str) -> None:
        """Forget all plans of a name, but not what their ranks were observed to use."""
        uids = select(PlanRow.uid).where(PlanRow.name == name).scalar_subquery()
        async with self._database.write() as session:
            for row in (AttemptRow, QuestionRow, RehearsalRow):
                await session.execute(delete(row).where(row.plan_uid.in_(uids)))
            await session.execute(delete(PlanRow).where(PlanRow.uid.in_(uids)))


async def current(session: AsyncSession, name: str) -> PlanRow | None:
    """The row of the current plan of a name."""
    wanted = select(PlanRow).where(PlanRow.current_name == name)
    return (await session.scalars(wanted)).one_or_none()


async def existing(session: AsyncSession, uid: str) -> PlanRow:
    """The row of a plan.

    Raises:
        StoreError: there is no such plan.
    """
    row = await session.get(PlanRow, uid)
    if row is None:
        raise StoreError(f"the plan {uid} was deleted: begin it anew")
    return row


def plan_of(row: PlanRow) -> StoredPlan:
    """A plan as the loop looks at it."""
    return StoredPlan(
        uid=row.uid,
        name=row.name,
        generation=row.generation,
        spec=record_of(TrainingPlanSpec, row.spec),
        status=record_of(Status, row.status),
        offers=tuple(Offer.from_json(one, "offers") for one in row.offers),
        folder=row.folder,
        created_s=row.created_s,
        is_suspended=row.is_suspended,
        was_told=row.was_told,
    )
