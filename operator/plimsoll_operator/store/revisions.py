"""Revisions of the plans that run, and what their ranks made of them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, update

from plimsoll_operator.rules.observed_state import RecordedRevision, RevisionState
from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import record_of
from plimsoll_operator.store.rows import RevisionRow
from plimsoll_planner.records.document import canonical_text, digest_of
from plimsoll_planner.records.revision import Revision


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRevision:
    """A revision without its plan."""

    number: int
    plan_digest: str
    state: RevisionState


class Revisions(Repository):
    """The revisions of each attempt, by the number of their plan."""

    async def of(self, plan_uid: str, attempt: int) -> tuple[RecordedRevision, ...]:
        """The revisions of an attempt, the oldest first."""
        mine = select(RevisionRow).filter_by(plan_uid=plan_uid, attempt=attempt)
        wanted = mine.order_by(RevisionRow.number)
        return tuple(map(revision_of, await self._all(wanted)))

    async def known(self, plan_uid: str, attempt: int) -> tuple[KnownRevision, ...]:
        """The same in few words."""
        row = RevisionRow
        wanted = (
            select(row.number, row.plan_digest, row.state)
            .filter_by(plan_uid=plan_uid, attempt=attempt)
            .order_by(row.number)
        )
        async with self._database.read() as session:
            found = (await session.execute(wanted)).all()
        return tuple(
            KnownRevision(number=number, plan_digest=digest, state=RevisionState(state))
            for number, digest, state in found
        )

    async def unanswered(self, plan_uid: str, attempt: int) -> tuple[int, ...]:
        """Attempts before one that ended with a revision on offer, the oldest first."""
        row = RevisionRow
        wanted = (
            select(row.attempt)
            .where(
                row.plan_uid == plan_uid,
                row.attempt < attempt,
                row.state == RevisionState.OFFERED,
            )
            .distinct()
            .order_by(row.attempt)
        )
        async with self._database.read() as session:
            return tuple((await session.execute(wanted)).scalars())

    async def find(self, plan_uid: str, attempt: int, number: int) -> Revision | None:
        """One revision, None if there is none of the number."""
        row = await self._row(RevisionRow, plan_uid, attempt, number)
        return None if row is None else record_of(Revision, row.document)

    async def record(
        self, plan_uid: str, attempt: int, revision: Revision, now_s: float
    ) -> None:
        """Write down a revision, unless there is one of its number; since 1970."""
        await self._keep_first(
            RevisionRow(
                plan_uid=plan_uid,
                attempt=attempt,
                number=revision.plan.revision,
                plan_digest=digest_of(revision.plan),
                made_s=now_s,
                state=RevisionState.OFFERED,
                settled_s=0.0,
                num_steps=0,
                moved_bytes=0,
                moved_s=0.0,
                message="",
                document=canonical_text(revision),
            )
        )

    async def settle(
        self, plan_uid: str, attempt: int, settled: RecordedRevision
    ) -> None:
        """Write down what the ranks made of a revision; what stands there stays."""
        row = RevisionRow
        await self._execute(
            update(row)
            .where(
                row.plan_uid == plan_uid,
                row.attempt == attempt,
                row.number == settled.number,
                row.state == RevisionState.OFFERED,
            )
            .values(
                state=settled.state,
                settled_s=settled.settled_s,
                num_steps=settled.num_steps,
                moved_bytes=settled.moved_bytes,
                moved_s=settled.moved_s,
                message=settled.message,
            )
        )


def revision_of(row: RevisionRow) -> RecordedRevision:
    """A revision as a decision looks at it."""
    return RecordedRevision(
        revision=record_of(Revision, row.document),
        made_s=row.made_s,
        state=RevisionState(row.state),
        settled_s=row.settled_s,
        num_steps=row.num_steps,
        moved_bytes=row.moved_bytes,
        moved_s=row.moved_s,
        message=row.message,
    )
