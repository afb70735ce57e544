"""Replays of plans, by the plan's digest."""

from __future__ import annotations

from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import large_record_of, large_text_of
from plimsoll_operator.store.rows import ReplayRow
from plimsoll_planner.records.replay import Replay


class Replays(Repository):
    """One replay of each plan, within a scope."""

    async def find(self, plan_digest: str) -> Replay | None:
        """The replay of a plan."""
        row = await self._used(ReplayRow, self._scope, plan_digest)
        if row is None:
            return None
        return await large_record_of(Replay, row.document)

    async def save(self, replay: Replay) -> None:
        """Keep a replay; the first one of a plan wins."""
        row = ReplayRow(
            scope=self._scope,
            plan_digest=replay.plan_digest,
            used_s=self._database.clock(),
            document=await large_text_of(replay),
        )
        await self._keep_first(row)
