"""What the store needs of a database system, and which system a place means.

In: the path of a file, or the address of a server. Out: a `Backend`, behind which
stands all that is SQLite's or PostgreSQL's own. Called by `database`, and handed on to
`migrate`. Either driver is imported where its place is named: a home has no PostgreSQL.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from plimsoll_operator.errors import StorePathError

REVISION_TABLE = "plimsoll_revision"
"""Of Alembic, under a name that tells our stores from others'."""
WRITING = {"writes": True}
"""Execution options of an engine whose transactions write."""
SCHEMES = ("postgresql", "postgres")


class Backend(Protocol):
    """One place where a store is, or will be."""

    @property
    def name(self) -> str:
        """What messages call it; never with a password."""
        ...

    @property
    def advice(self) -> str:
        """What a person does who cannot use it: names another one."""
        ...

    @property
    def patience_s(self) -> float | None:
        """How long a transaction may take in all; None where nothing can hang."""
        ...

    def prepare(self) -> str:
        """Make sure that a store can be there; return the revision of its tables.

        Returns:
            Empty where there are no tables yet.

        Raises:
            StoreError: none can, or something else is there.
        """
        ...

    def engine(self) -> AsyncEngine:
        """Return an engine; a transaction with `WRITING` takes its turn to write."""
        ...

    def migration_engine(self) -> Engine:
        """Return an engine that writes, for a thread that changes tables."""
        ...

    def explaining(self) -> AbstractContextManager[None]:
        """Turn what driver and SQLAlchemy raise into a `StoreError`."""
        ...

    def check(self) -> None:
        """Raise a `StoreLostError` where it is not what the engine was opened on."""
        ...


def backend_of(place: Path | str) -> Backend:
    """Return what is at a place.

    Args:
        place: the path of a file, or `postgresql://user:password@host:port/database`.

    Raises:
        StorePathError: an address that is none, or of another database system.
    """
    scheme, is_address, _ = str(place).partition("://")
    if isinstance(place, Path) or not is_address:
        from plimsoll_operator.store.sqlite import SqliteFile  # noqa: PLC0415

        return SqliteFile(Path(place))
    if scheme not in SCHEMES:
        raise StorePathError(
            f"a store on {scheme!r}: got the address of another database system; name "
            "a file, or postgresql://user:password@host:port/database"
        )
    from plimsoll_operator.store.postgresql import server_at  # noqa: PLC0415

    return server_at(str(place))


def writes(connection: Connection) -> bool:
    """Tell whether a transaction that begins is one that writes."""
    return WRITING.items() <= connection.get_execution_options().items()
