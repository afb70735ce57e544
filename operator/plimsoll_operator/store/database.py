"""Transactions on a store, and what ends them.

In: a place. Out: sessions that read or write, whole or not at all. Called by the
repositories. Whatever goes wrong leaves as a `StoreError`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Executable, Select, inspect, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from plimsoll_operator.errors import StoreError, StoreVersionError
from plimsoll_operator.store.places import system_at
from plimsoll_operator.store.rows import Base, UsedRow
from plimsoll_operator.store.system import WRITING, DatabaseSystem

T = TypeVar("T")
Row = TypeVar("Row", bound=Base)
Used = TypeVar("Used", bound=UsedRow)
NEWEST_REVISION = "0005"
"""Of `migrations`; larger ones were written by a newer version of Plimsoll."""
DAY_S = 86_400.0
"""By which the stored time of last use may be too early, so that reads seldom write."""


class Database:
    """A store's file, or its database on a server, open."""

    def __init__(
        self, system: DatabaseSystem, clock: Callable[[], float] = time.time
    ) -> None:
        """Open it; `clock` gives seconds since 1970."""
        self.clock = clock
        self._system = system
        self._engine = system.engine()
        # Who waits for a turn in this process needs no connection meanwhile.
        self._one_writer = asyncio.Lock()
        self.fitting = asyncio.Lock()
        """One fit of calibrations at a time, in all scopes."""
        self._reading = async_sessionmaker(self._engine, expire_on_commit=False)
        self._writing = async_sessionmaker(
            self._engine.execution_options(**WRITING), expire_on_commit=False
        )

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        """A transaction that only reads."""
        return self._transaction(self._reading, nullcontext())

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        """A transaction that writes; all processes take turns."""
        return self._transaction(self._writing, self._one_writer)

    @asynccontextmanager
    async def _transaction(
        self,
        sessions: async_sessionmaker[AsyncSession],
        turn: AbstractAsyncContextManager[None],
    ) -> AsyncGenerator[AsyncSession]:
        """Commit at the end, and say what an error means.

        Raises:
            StoreError: it could not be done, and nothing was.
        """
        patience = asyncio.timeout(self._system.patience_s)
        try:
            with self._system.explaining():
                async with patience, turn, sessions.begin() as session:
                    yield session
        except StoreError:
            self._system.check()
            raise
        self._system.check()

    async def close(self) -> None:
        """Let go of it."""
        await self._engine.dispose()


class Repository:
    """Base of what works on one table or a few."""

    def __init__(self, database: Database, scope: str = "") -> None:
        """Work on a database, within a scope of it."""
        self._database = database
        self._scope = scope

    async def _row(self, kind: type[Row], *key: object) -> Row | None:
        """The row of a primary key, in the order of its columns."""
        async with self._database.read() as session:
            return await session.get(kind, key)

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

    async def _all(self, wanted: Select[T]) -> Sequence[T]:
        """All that a query of one entity or column finds."""
        async with self._database.read() as session:
            return (await session.scalars(wanted)).all()

    async def _replace(self, row: Base) -> None:
        """Keep a row in place of the one with its key."""
        async with self._database.write() as session:
            await session.merge(row)

    async def _keep_first(self, row: Base) -> None:
        """Keep a row, unless there is one with its key."""
        kind = type(row)
        async with self._database.write() as session:
            key = inspect(kind).primary_key_from_instance(row)
            if await session.get(kind, key) is None:
                session.add(row)

    async def _execute(self, statement: Executable) -> None:
        """Do one thing in a transaction of its own."""
        async with self._database.write() as session:
            await session.execute(statement)


@asynccontextmanager
async def open_database(
    place: Path | str, clock: Callable[[], float] = time.time
) -> AsyncGenerator[Database]:
    """Open what has the tables of this version, once it has.

    Raises:
        StoreError: it is no store, a newer one, or cannot be written.
    """
    system = system_at(place)
    revision = await asyncio.to_thread(system.prepare)
    if revision > NEWEST_REVISION:
        raise StoreVersionError(
            f"{system.name} was written by a newer version of Plimsoll (revision "
            f"{revision}): update plimsoll, or {system.advice}"
        )
    if revision < NEWEST_REVISION:
        await asyncio.to_thread(migrate, system)
    database = Database(system, clock)
    try:
        yield database
    finally:
        await database.close()


def migrate(system: DatabaseSystem) -> None:
    """Bring the tables up to this version, unless another process just has."""
    # Alembic takes longer to import than a store to open, and is seldom needed.
    from plimsoll_operator.store.migrate import upgrade  # noqa: PLC0415

    upgrade(system)
