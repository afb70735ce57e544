"""The one place that knows SQLite: its file, its engine, its error codes.

In: a path. Out: a `DatabaseSystem`: a file that can be written, engines on it, and
errors that say what to do. Called by `places`. All other SQL of the store is portable.

WAL lets readers read while one process writes, and survives a process that is killed at
any moment. `synchronous=NORMAL` writes to the disk at each checkpoint, not at each
commit: a machine that loses power may lose its last seconds, never the file. A file
that was deleted or replaced under an open store is noticed at the end of each
transaction, for SQLite would go on writing into the file that nobody sees any more.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from plimsoll_operator.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreLostError,
    StorePathError,
    StoreVersionError,
)
from plimsoll_operator.store.system import (
    REVISION_TABLE,
    WRITING,
    DatabaseSystem,
    writes,
)

BUSY_S = 60.0
"""Waited for another process, whose transactions last milliseconds."""
RETRY_S = 0.02
"""Between two tries where SQLite itself does not wait."""
PRIMARY_CODE = 0xFF
"""The part of an extended error code that names its kind."""
CANNOT_GROW = (
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_TRUNCATE,
)
"""Errors that quotas and limits end in; a full disk ends in SQLITE_FULL."""


class SqliteFile(DatabaseSystem):
    """A store in a file."""

    advice = "name another --home"
    patience_s = None
    driver_errors = (sqlite3.Error,)

    def __init__(self, path: Path) -> None:
        """Remember which file, wherever the process moves."""
        self.path = path.absolute()
        self.name = str(self.path)
        self._opened: tuple[int, int] | None = None

    def prepare(self) -> str:
        """Make the file if there is none; the revision of its tables."""
        path = self.path
        check_path(path)
        with (
            self.explaining(),
            closing(sqlite3.connect(path, BUSY_S, isolation_level=None)) as file,
        ):
            check_owner(path, file)
            turn_on_wal(file)
            file.execute("BEGIN IMMEDIATE")
            revision = revision_of(file)
            file.execute("ROLLBACK")
            return revision

    def engine(self) -> AsyncEngine:
        """An engine on a file that exists; it never makes one."""
        self._opened = file_at(self.path)
        url = url_of(self.path, "sqlite+aiosqlite")
        engine = create_async_engine(url, connect_args={"timeout": BUSY_S})
        listen(engine.sync_engine)
        return engine

    def migration_engine(self) -> Engine:
        """An engine for a thread that changes tables."""
        engine = create_engine(
            url_of(self.path, "sqlite"),
            connect_args={"timeout": BUSY_S},
            execution_options=WRITING,
        )
        listen(engine)
        return engine

    def explained(self, error: BaseException) -> StoreError:
        """The meaning of an error of SQLite, and what to do next."""
        path = self.path
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        kind = code & PRIMARY_CODE
        if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusyError(
                f"{path}: another process has been writing for {BUSY_S:.0f} s: try "
                "again"
            )
        if kind == sqlite3.SQLITE_FULL or code in CANNOT_GROW:
            return StoreFullError(
                f"{path} cannot grow: the disk is full, or a quota is used up: make "
                "room and try again"
            )
        if kind in (
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_PERM,
            sqlite3.SQLITE_READONLY,
        ):
            return StorePathError(
                f"{path} cannot be written ({error}): name another --home"
            )
        if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreDamagedError(
                f"{path} is no store, or it is damaged ({error}): restore it, or name "
                "another --home"
            )
        if str(error).startswith("no such "):
            return StoreVersionError(
                f"{path} was written by a development version of Plimsoll ({error}): "
                "delete its folder, or name another --home"
            )
        return StoreError(f"{path}: {error}: try again, or name another --home")

    def check(self) -> None:
        """Raise where the file is not the one that was opened."""
        if self._opened != file_at(self.path):
            raise StoreLostError(
                f"{self.path} was deleted or replaced while it was open: put it back, "
                "or start again with an empty store"
            )


def file_at(path: Path) -> tuple[int, int] | None:
    """Identity of the file at a path."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check_path(path: Path) -> None:
    """Refuse a path that no file can be at."""
    try:
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "no file"
            raise StorePathError(f"{path} is {what}: name another --home")
        if not path.parent.is_dir():
            raise StorePathError(
                f"{path}: there is no folder {path.parent}: make it, or name another "
                "--home"
            )
    except OSError as error:
        raise StorePathError(f"{path}: {error.strerror}: name another --home") from None


def check_owner(path: Path, file: sqlite3.Connection) -> None:
    """Refuse a database of something else, before anything is changed in it."""
    tables = tables_of(file)
    if tables and REVISION_TABLE not in tables:
        raise StoreDamagedError(
            f"{path} is a database of something else: name another --home"
        )


def revision_of(file: sqlite3.Connection) -> str:
    """The revision that is written down."""
    if REVISION_TABLE not in tables_of(file):
        return ""
    rows = file.execute(f"SELECT version_num FROM {REVISION_TABLE}").fetchall()  # noqa: S608 - a constant
    return rows[0][0] if rows else ""


def tables_of(file: sqlite3.Connection) -> set[str]:
    """The names of all tables."""
    rows = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in rows}


def turn_on_wal(file: sqlite3.Connection) -> None:
    """Switch the file to WAL, once for all.

    SQLite does not wait here while another process writes, so that we do.
    """
    until_s = time.monotonic() + BUSY_S
    while file.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            file.execute("PRAGMA journal_mode = wal")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & PRIMARY_CODE == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > until_s:
                raise
            time.sleep(RETRY_S)


def url_of(path: Path, driver: str) -> URL:
    """Address of a file for SQLAlchemy."""
    name = f"file:{quote(os.fsencode(path))}"
    return URL.create(driver, database=name, query={"mode": "rw", "uri": "true"})


def listen(engine: Engine) -> None:
    """Set up every connection and every transaction of an engine."""
    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", begin)


def set_up(connection: DBAPIConnection, _: object) -> None:
    """Prepare a new connection; transactions are opened by `begin` alone."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = on")
    cursor.execute("PRAGMA synchronous = normal")
    cursor.close()


def begin(connection: Connection) -> None:
    """Open a transaction; one that writes takes its turn before it reads."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes(connection) else "BEGIN")
