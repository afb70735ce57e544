"""Runs migrations on the connection that was handed over; called by Alembic."""

from __future__ import annotations

from alembic import context

from plimsoll_operator.store.backend import REVISION_TABLE
from plimsoll_operator.store.rows import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=REVISION_TABLE,
)
context.run_migrations()
