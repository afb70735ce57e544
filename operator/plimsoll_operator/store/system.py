"""Needs of the store from a database system: engines, errors, a revision.

A `DatabaseSystem` stands for all that is SQLite's or PostgreSQL's own: `sqlite` and
`postgresql` have one each, `places` finds the one that is meant, `database` and
`migrate` use it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from plimsoll_operator.errors import StoreError

REVISION_TABLE = "plimsoll_revision"
"""Of Alembic, under a name that other stores do not have."""
WRITING = {"writes": True}
"""Execution options of an engine whose transactions write."""


class DatabaseSystem(ABC):
    """One place where a store is, or will be."""

    name: str
    """For messages; never with a password."""
    advice: str
    """Advice to a person who cannot use it: name another one."""
    patience_s: float | None
    """Seconds for a whole transaction; None where nothing can hang."""
    driver_errors: tuple[type[Exception], ...]
    """Errors besides those that SQLAlchemy wraps."""

    @abstractmethod
    def prepare(self) -> str:
        """Make sure that a store can be there; the revision of its tables.

        Returns:
            Empty where there are no tables yet.

        Raises:
            StoreError: none can, or something else is there.
        """

    @abstractmethod
    def engine(self) -> AsyncEngine:
        """An engine; a transaction with `WRITING` takes its turn to write."""

    @abstractmethod
    def migration_engine(self) -> Engine:
        """An engine that writes, for a thread that changes tables."""

    @abstractmethod
    def explained(self, error: BaseException) -> StoreError:
        """The meaning of an error, and what to do next."""

    @contextmanager
    def explaining(self) -> Generator[None]:
        """Turn errors of driver, SQLAlchemy and our patience into a `StoreError`."""
        try:
            yield
        except DBAPIError as error:
            raise self.explained(error.orig or error) from None
        except self.driver_errors as error:
            raise self.explained(error) from None

    def check(self) -> None:  # noqa: B027 - a server needs no check
        """Raise a `StoreLostError` where it is not what the engine was opened on."""


def writes(connection: Connection) -> bool:
    """Whether a transaction that begins is one that writes."""
    return WRITING.items() <= connection.get_execution_options().items()
