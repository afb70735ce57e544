"""What replaying plans gave, by the plan's digest."""

from __future__ import annotations

from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import large_record_of, large_text_of
from plimsoll_operator.store.rows import ReplayRow
from plimsoll_operator.store.uses import use
from plimsoll_planner.records.replay import Replay


class Replays(Repository):
    """One replay of each plan, within a scope."""

    async def find(self, plan_digest: str) -> Replay | None:
        """The replay of a plan."""
        key = {"scope": self._scope, "plan_digest": plan_digest}
        async with self._database.read() as session:
            row = await session.get(ReplayRow, key)
        if row is None:
            return None
        await use(self._database, row)
        return await large_record_of(Replay, row.document)

    async def save(self, replay: Replay) -> None:
        """Keep a replay; the first one of a plan wins."""
        key = {"scope": self._scope, "plan_digest": replay.plan_digest}
        text, now_s = await large_text_of(replay), self._database.clock()
        async with self._database.write() as session:
            if await session.get(ReplayRow, key) is None:
                session.add(ReplayRow(**key, used_s=now_s, document=text))
