"""Questions to the search for a plan, each fixed once it was put.

Offers and calibrations change all the time; a question that was put stays as it is, so
that its answer and replays still belong together after a restart. Another question is
put where a person edits the spec, an attempt has taught something, or the workload was
profiled again. The older ones stay: by them the older attempts were planned.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import func, select

from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import (
    large_digest_of,
    large_record_of,
    large_text_of,
)
from plimsoll_operator.store.rows import QuestionRow
from plimsoll_planner.records.problem import Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Occasion:
    """Occasion of a question, which is put once."""

    plan_uid: str
    generation: int
    """Of spec and offers."""
    round: int
    """Number of times that attempts have taught something."""
    profile_digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredQuestion:
    """A question, and the digest by which its answer is found."""

    problem: Problem
    digest: str


class Questions(Repository):
    """The questions of each plan, in the order in which they were put."""

    async def find(self, occasion: Occasion) -> StoredQuestion | None:
        """The question that was put on an occasion."""
        found = await self._all(select(QuestionRow).filter_by(**asdict(occasion)))
        return await question_of(found[0]) if found else None

    async def digests(self, plan_uid: str, generation: int) -> tuple[str, ...]:
        """Digests of what was asked for a plan since its latest edit, in order."""
        row = QuestionRow
        wanted = (
            select(row.problem_digest)
            .where(row.plan_uid == plan_uid, row.generation == generation)
            .order_by(row.number)
        )
        return tuple(await self._all(wanted))

    async def of(self, plan_uid: str) -> tuple[StoredQuestion, ...]:
        """All questions of a plan, the latest first."""
        mine = select(QuestionRow).where(QuestionRow.plan_uid == plan_uid)
        wanted = mine.order_by(QuestionRow.number.desc())
        return tuple([await question_of(row) for row in await self._all(wanted)])

    async def problem(self, plan_uid: str, digest: str) -> Problem | None:
        """The problem of a digest that was asked for a plan; None: none was."""
        mine = select(QuestionRow).filter_by(plan_uid=plan_uid, problem_digest=digest)
        found = await self._all(mine.limit(1))
        return (await question_of(found[0])).problem if found else None

    async def put(self, occasion: Occasion, problem: Problem) -> StoredQuestion:
        """Put a question; whoever decides has found that there is none yet."""
        mine = QuestionRow.plan_uid == occasion.plan_uid
        digest = await large_digest_of(problem)
        text = await large_text_of(problem)
        async with self._database.write() as session:
            before = await session.scalar(
                select(func.max(QuestionRow.number)).where(mine)
            )
            session.add(
                QuestionRow(
                    **asdict(occasion),
                    number=(before or 0) + 1,
                    problem_digest=digest,
                    document=text,
                )
            )
        return StoredQuestion(problem=problem, digest=digest)

    async def hand_on(self, plan_uid: str, later_uid: str) -> None:
        """Put the latest question of a plan for a later one that asks the same."""
        mine = select(QuestionRow).where(QuestionRow.plan_uid == plan_uid)
        latest = mine.order_by(QuestionRow.number.desc()).limit(1)
        async with self._database.write() as session:
            found = (await session.scalars(latest)).one_or_none()
            if found is not None:
                session.add(
                    QuestionRow(
                        plan_uid=later_uid,
                        number=1,
                        generation=1,
                        round=0,
                        profile_digest=found.profile_digest,
                        problem_digest=found.problem_digest,
                        document=found.document,
                    )
                )


async def question_of(row: QuestionRow) -> StoredQuestion:
    """A question as it was put."""
    problem = await large_record_of(Problem, row.document)
    return StoredQuestion(problem=problem, digest=row.problem_digest)
