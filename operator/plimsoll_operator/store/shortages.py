"""Ranks that ran out of device memory; an attempt ends with the first of them."""

from __future__ import annotations

from plimsoll_operator.store.database import Database
from plimsoll_operator.store.rows import ShortageRow
from plimsoll_planner.observed_overhead import Shortage


class Shortages:
    """One shortage of each attempt that ended by one."""

    def __init__(self, database: Database, scope: str) -> None:
        """Work on a database, within a scope of it."""
        self._database = database
        self._scope = scope

    async def save(self, plan_uid: str, attempt: int, shortage: Shortage) -> None:
        """Keep a shortage; the first one of an attempt wins."""
        found = ShortageRow(
            **shortage.key.to_json(),
            scope=self._scope,
            plan_uid=plan_uid,
            attempt=attempt,
            micro_batch=shortage.micro_batch,
            num_communicators=shortage.num_communicators,
            capacity_bytes=shortage.capacity_bytes,
            in_use_bytes=shortage.in_use_bytes,
            asked_bytes=shortage.asked_bytes,
            predicted_allocated_bytes=shortage.predicted_allocated_bytes,
            predicted_device_bytes=shortage.predicted_device_bytes,
        )
        async with self._database.write() as session:
            if await session.get(ShortageRow, (plan_uid, attempt)) is None:
                session.add(found)
