"""Brings the tables of a store up to the newest revision, with Alembic.

In: a connection whose transaction writes. Out: tables as `rows` has them. Called
where a store is opened that is new or older.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the migrations that are missing, in the connection's transaction."""
    command.upgrade(config_for(connection), revision)


def config_for(connection: Connection) -> Config:
    """Return what Alembic wants to know."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config
