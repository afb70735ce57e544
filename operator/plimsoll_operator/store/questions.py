"""What the search was asked, fixed for one state of a plan's spec.

Offers and calibrations change all the time; a question that was put once stays as it
is, so that its answer and replays still belong together after a restart.
"""

from __future__ import annotations

from sqlalchemy import delete

from plimsoll_operator.store.database import Database
from plimsoll_operator.store.documents import record_of
from plimsoll_operator.store.rows import QuestionRow
from plimsoll_planner.records.document import canonical_text, digest_of
from plimsoll_planner.records.problem import Problem


class Questions:
    """One question of each plan, generation and round."""

    def __init__(self, database: Database) -> None:
        """Work on a database."""
        self._database = database

    async def find(self, plan_uid: str, generation: int, round: int) -> Problem | None:  # noqa: A002 - the word for it
        """Return the question that was put."""
        async with self._database.read() as session:
            row = await session.get(QuestionRow, (plan_uid, generation, round))
        return None if row is None else record_of(Problem, row.document)

    async def save(
        self,
        plan_uid: str,
        generation: int,
        round: int,  # noqa: A002 - the word for it
        problem: Problem,
    ) -> Problem:
        """Put a question; if one was put before, that one counts and is returned."""
        asked = QuestionRow(
            plan_uid=plan_uid,
            generation=generation,
            round=round,
            problem_digest=digest_of(problem),
            document=canonical_text(problem),
        )
        async with self._database.write() as session:
            before = await session.get(QuestionRow, (plan_uid, generation, round))
            if before is None:
                session.add(asked)
        return problem if before is None else record_of(Problem, before.document)

    async def drop(self, plan_uid: str, generation: int) -> None:
        """Forget what was asked for a spec: the workload was profiled again."""
        outdated = delete(QuestionRow).where(
            QuestionRow.plan_uid == plan_uid, QuestionRow.generation == generation
        )
        async with self._database.write() as session:
            await session.execute(outdated)
