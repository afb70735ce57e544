"""Runs migrations on the connection that was handed over; called by Alembic."""

from __future__ import annotations

from alembic import context

from plimsoll_operator.store.rows import Base
from plimsoll_operator.store.system import REVISION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=REVISION_TABLE,
)
context.run_migrations()
