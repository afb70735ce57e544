"""Ranks that ran out of device memory; an attempt ends with the first of them.

In: a `Shortage` of an attempt. Out: those for which conditions hold, which
`calibrations` fits overheads to.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.rows import ShortageRow, key_of
from plimsoll_planner.overhead.observed import Shortage

FIGURES: Final = tuple(one.name for one in fields(Shortage) if one.name != "key")
"""Fields of the record; the columns of a row have the same names."""


class Shortages(Repository):
    """One shortage of each attempt that ended by one."""

    async def save(self, plan_uid: str, attempt: int, shortage: Shortage) -> None:
        """Keep a shortage; the first one of an attempt wins."""
        row = ShortageRow(
            **shortage.key.to_json(),
            scope=self._scope,
            plan_uid=plan_uid,
            attempt=attempt,
            **{name: getattr(shortage, name) for name in FIGURES},
        )
        await self._keep_first(row)


async def found_where(
    session: AsyncSession, *where: ColumnElement[bool]
) -> list[Shortage]:
    """The shortages for which all conditions hold, by plan and attempt."""
    in_order = ShortageRow.plan_uid, ShortageRow.attempt
    rows = await session.scalars(select(ShortageRow).where(*where).order_by(*in_order))
    return [
        Shortage(key=key_of(row), **{name: getattr(row, name) for name in FIGURES})
        for row in rows
    ]
