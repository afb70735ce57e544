"""What the store needs of a database system: engines, errors, a revision.

A `DatabaseSystem` stands for all that is SQLite's or PostgreSQL's own: `sqlite` and
`postgresql` have one each, `places` finds the one that is meant, `database` and
`migrate` use it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

REVISION_TABLE = "plimsoll_revision"
"""Of Alembic, under a name that tells our stores from others'."""
WRITING = {"writes": True}
"""Execution options of an engine whose transactions write."""


class DatabaseSystem(Protocol):
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
        """An engine; a transaction with `WRITING` takes its turn to write."""
        ...

    def migration_engine(self) -> Engine:
        """An engine that writes, for a thread that changes tables."""
        ...

    def explaining(self) -> AbstractContextManager[None]:
        """Turn what driver and SQLAlchemy raise into a `StoreError`."""
        ...

    def check(self) -> None:
        """Raise a `StoreLostError` where it is not what the engine was opened on."""
        ...


def writes(connection: Connection) -> bool:
    """Whether a transaction that begins is one that writes."""
    return WRITING.items() <= connection.get_execution_options().items()
