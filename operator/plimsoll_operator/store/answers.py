"""Answers of the search, by the digest of the problem."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import large_record_of, large_text_of
from plimsoll_operator.store.rows import AnswerRow
from plimsoll_planner.records.solution import Infeasible, Solution


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredAnswer:
    """An answer, and how far it is certified."""

    answer: Solution | Infeasible
    unreplayed: str
    """Digest of a plan whose replay the search waits for; empty: of none."""
    is_certified: bool
    num_rounds: int
    """Of search and replay."""


class Answers(Repository):
    """The latest answer to each problem, within a scope."""

    async def find(self, problem_digest: str) -> StoredAnswer | None:
        """The answer to a problem."""
        row = await self._used(AnswerRow, self._scope, problem_digest)
        if row is None:
            return None
        kind = Solution if row.is_feasible else Infeasible
        return StoredAnswer(
            answer=await large_record_of(kind, row.document),
            unreplayed=row.unreplayed,
            is_certified=row.is_certified,
            num_rounds=row.num_rounds,
        )

    async def save(self, problem_digest: str, answer: StoredAnswer) -> None:
        """Keep an answer in place of the one before."""
        row = AnswerRow(
            scope=self._scope,
            problem_digest=problem_digest,
            is_feasible=isinstance(answer.answer, Solution),
            unreplayed=answer.unreplayed,
            is_certified=answer.is_certified,
            num_rounds=answer.num_rounds,
            used_s=self._database.clock(),
            document=await large_text_of(answer.answer),
        )
        await self._replace(row)
