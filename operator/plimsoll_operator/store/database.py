"""Transactions on a store, and what ends them.

In: a path. Out: sessions that read or write, whole or not at all. Called by the
repositories. Whatever goes wrong leaves as a `StoreError`; a file that was deleted or
replaced under an open store is noticed at the end of each transaction, for SQLite would
go on writing into the file that nobody sees any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from plimsoll_operator.errors import StoreError, StoreLostError, StoreVersionError
from plimsoll_operator.store.sqlite import WRITING, engine_for, explaining, prepare

NEWEST_REVISION = "0001"
"""Of `migrations`; larger ones were written by a newer version of Plimsoll."""


class Database:
    """A store's file, open."""

    def __init__(self, path: Path, engine: AsyncEngine) -> None:
        """Remember which file it is.

        Args:
            path: absolute.
            engine: on it.
        """
        self.path = path
        self._engine = engine
        self._file = file_at(path)
        self._one_writer = asyncio.Lock()
        self._reading = async_sessionmaker(engine, expire_on_commit=False)
        self._writing = async_sessionmaker(
            engine.execution_options(**WRITING), expire_on_commit=False
        )

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        """Open a transaction that only reads."""
        async with self._transaction(self._reading) as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        """Open a transaction that writes; all processes take turns."""
        async with self._one_writer, self._transaction(self._writing) as session:
            yield session

    @asynccontextmanager
    async def _transaction(
        self, sessions: async_sessionmaker[AsyncSession]
    ) -> AsyncGenerator[AsyncSession]:
        """Commit at the end, and say what an error means.

        Raises:
            StoreError: it could not be done, and nothing was.
        """
        try:
            with explaining(self.path):
                async with sessions.begin() as session:
                    yield session
        except StoreError:
            self._check_file()
            raise
        self._check_file()

    def _check_file(self) -> None:
        """Raise where the file is not the one that was opened."""
        if self._file != file_at(self.path):
            raise StoreLostError(
                f"{self.path} was deleted or replaced while it was open: put it back, "
                "or start again with an empty store"
            )

    async def close(self) -> None:
        """Let go of the file."""
        await self._engine.dispose()


def file_at(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at a path from another one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@asynccontextmanager
async def open_database(path: Path) -> AsyncGenerator[Database]:
    """Open a file whose tables are those of this version.

    Raises:
        StoreError: it is no store, a newer one, or cannot be written.
    """
    path = path.absolute()  # noqa: ASYNC240 - asks for the working folder alone
    revision = await asyncio.to_thread(prepare, path)
    if revision > NEWEST_REVISION:
        raise StoreVersionError(
            f"{path} was written by a newer version of Plimsoll (revision {revision}): "
            "update plimsoll, or name another --home"
        )
    if revision < NEWEST_REVISION:
        await asyncio.to_thread(migrate, path)
    database = Database(path, engine_for(path))
    try:
        yield database
    finally:
        await database.close()


def migrate(path: Path) -> None:
    """Bring the tables up to this version, unless another process just has."""
    # Alembic takes longer to import than a store to open, and is seldom needed.
    from plimsoll_operator.store.migrate import upgrade  # noqa: PLC0415

    upgrade(path)
