"""Brings the tables of a store up to the newest revision, with Alembic.

In: the path of a store that is new or older. Out: tables as `rows` has them. Called
where a store is opened, in a thread of its own.
"""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config

from plimsoll_operator.store.sqlite import explaining, migration_engine_for

MIGRATIONS = Path(__file__).parent / "migrations"
ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps what it works on in variables of its modules."""


def upgrade(path: Path, revision: str = "head") -> None:
    """Run the migrations that are missing, all or none of them.

    Raises:
        StoreError: it could not be done.
    """
    engine = migration_engine_for(path)
    try:
        with explaining(path), ONE_AT_A_TIME, engine.begin() as connection:
            config = Config(attributes={"connection": connection})
            config.set_main_option(
                "script_location", str(MIGRATIONS).replace("%", "%%")
            )
            command.upgrade(config, revision)
    finally:
        engine.dispose()
