"""Last use of a row, to a day, so that reads seldom write.

In: a row that was just read. Out: the time in the store, where it was older than a day.
Called by the repositories whose rows `Store.forget_unused` removes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

from sqlalchemy import update

from plimsoll_operator.errors import StoreError
from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.rows import UsedRow

Used = TypeVar("Used", bound=UsedRow)
DAY_S = 86_400.0
"""By which the time in the store may be too early."""


class UsedRepository(Repository):
    """Base of what works on a table of `UsedRow`."""

    async def _used(self, kind: type[Used], *key: object) -> Used | None:
        """The row of a primary key, which counts as used now.

        The time is not kept where the store takes no writes now. Whoever reads has what
        was asked for; the next one to read it tries again.
        """
        row, now_s = await self._row(kind, *key), self._database.clock()
        if row is not None and now_s >= row.used_s + DAY_S:
            columns = kind.__table__.primary_key
            mine = [column == getattr(row, column.key) for column in columns]
            with suppress(StoreError):
                await self._execute(update(kind).where(*mine).values(used_s=now_s))
        return row
