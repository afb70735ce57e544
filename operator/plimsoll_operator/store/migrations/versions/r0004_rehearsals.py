"""Rehearsals: asked for by plan and digest, then with their result."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "rehearsal",
        sa.Column("plan_uid", sa.String(64), primary_key=True),
        sa.Column("plan_digest", sa.String(71), primary_key=True),
        sa.Column("capacity_bytes", sa.BigInteger, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("fits", sa.Boolean),
        sa.Column("document", sa.Text),
    )


def downgrade() -> None:
    """Keep all else: what was rehearsed is rehearsed again."""
    op.drop_table("rehearsal")
