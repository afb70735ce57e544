"""Plans of record, and how their attempts ended."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, update

from plimsoll_operator.rules.observed_state import Attempt, Ending
from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import record_of
from plimsoll_operator.store.rows import AttemptRow
from plimsoll_planner.records.document import canonical_text, digest_of
from plimsoll_planner.records.plan import HybridPlan, Phase


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredAttempt(Attempt):
    """An attempt, with what it trains by."""

    plan: HybridPlan
    """Of record."""


class Attempts(Repository):
    """The attempts of each plan, numbered from 1."""

    async def of(self, plan_uid: str) -> tuple[StoredAttempt, ...]:
        """The attempts of a plan, the oldest first."""
        mine = select(AttemptRow).where(AttemptRow.plan_uid == plan_uid)
        wanted = mine.order_by(AttemptRow.number)
        return tuple(map(attempt_of, await self._all(wanted)))

    async def record(
        self,
        plan_uid: str,
        number: int,
        plan: HybridPlan,
        *,
        problem_digest: str,
        now_s: float,
    ) -> HybridPlan:
        """Write down by which plan an attempt trains; `now_s` is since 1970.

        Returns:
            The plan of record: the given one, or the one that was there before.
        """
        made = AttemptRow(
            plan_uid=plan_uid,
            number=number,
            plan_digest=digest_of(plan),
            problem_digest=problem_digest,
            micro_batch=plan.micro_batch,
            recorded_s=now_s,
            ended_s=0.0,
            generation=0,
            message="",
            document=canonical_text(plan),
        )
        async with self._database.write() as session:
            before = await session.get(AttemptRow, (plan_uid, number))
            if before is None:
                session.add(made)
        return plan if before is None else record_of(HybridPlan, before.document)

    async def end(self, plan_uid: str, ended: Attempt) -> None:
        """Write down what became of an attempt; what stands there already stays."""
        end = (
            update(AttemptRow)
            .where(
                AttemptRow.plan_uid == plan_uid,
                AttemptRow.number == ended.number,
                AttemptRow.ending.is_(None),
            )
            .values(
                ending=ended.ending,
                ended_s=ended.ended_s,
                generation=ended.generation,
                message=ended.message,
                rank=ended.rank,
                phase=ended.phase,
            )
        )
        await self._execute(end)


def attempt_of(row: AttemptRow) -> StoredAttempt:
    """An attempt as a decision looks at it."""
    return StoredAttempt(
        number=row.number,
        plan_digest=row.plan_digest,
        plan=record_of(HybridPlan, row.document),
        problem_digest=row.problem_digest,
        recorded_s=row.recorded_s,
        ending=None if row.ending is None else Ending(row.ending),
        ended_s=row.ended_s,
        generation=row.generation,
        message=row.message,
        rank=row.rank,
        phase=None if row.phase is None else Phase(row.phase),
    )
