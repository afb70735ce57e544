"""Brings the tables of a store to another revision, with Alembic.

In: a place where a store is, or will be. Out: tables as `rows` has them, or as they
were. Called where a store is opened, in a thread of its own; down only by whoever goes
back to an older version of Plimsoll.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config

from plimsoll_operator.store.system import DatabaseSystem

MIGRATIONS = Path(__file__).parent / "migrations"
ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps what it works on in variables of its modules."""


def upgrade(system: DatabaseSystem, revision: str = "head") -> None:
    """Run the migrations that are missing, all or none of them.

    Raises:
        StoreError: it could not be done.
    """
    run(command.upgrade, system, revision)


def downgrade(system: DatabaseSystem, revision: str) -> None:
    """Undo all migrations after a revision, all or none of them.

    Raises:
        StoreError: it could not be done.
    """
    run(command.downgrade, system, revision)


def run(
    what: Callable[[Config, str], None], system: DatabaseSystem, revision: str
) -> None:
    """Give Alembic a transaction that has its turn; others find its work done."""
    engine = system.migration_engine()
    try:
        with system.explaining(), ONE_AT_A_TIME, engine.begin() as connection:
            config = Config(attributes={"connection": connection})
            config.set_main_option(
                "script_location", str(MIGRATIONS).replace("%", "%%")
            )
            what(config, revision)
    finally:
        engine.dispose()
