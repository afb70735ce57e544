"""When a row was last used, to a day, so that reads seldom write.

In: a row that was just read. Out: the time in the store, where it was older than a day.
Called by the repositories whose rows `Store.forget_unused` removes.
"""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import update

from plimsoll_operator.errors import StoreError
from plimsoll_operator.store.database import Database
from plimsoll_operator.store.rows import UsedRow

DAY_S = 86_400.0
"""By which the time in the store may be too early."""


async def use(database: Database, row: UsedRow) -> None:
    """Remember that a row is used; in vain where the store takes no writes now.

    Whoever reads has what was asked for; the next one to read it tries again.
    """
    now_s = database.clock()
    if now_s < row.used_s + DAY_S:
        return
    kind = type(row)
    key = kind.__table__.primary_key
    mine = [column == getattr(row, column.key) for column in key]
    with suppress(StoreError):
        async with database.write() as session:
            await session.execute(update(kind).where(*mine).values(used_s=now_s))
