"""Rehearsals: asked for by a plan's digest, then with their result."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "rehearsal",
        sa.Column("scope", sa.String(256), server_default="", nullable=False),
        sa.Column("plan_digest", sa.String(71), nullable=False),
        sa.Column("device_product", sa.String(256), nullable=False),
        sa.Column("capacity_bytes", sa.BigInteger, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("fits", sa.Boolean),
        sa.Column("document", sa.Text),
        sa.Column("used_s", sa.Double, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("scope", "plan_digest", name="rehearsal_key"),
    )


def downgrade() -> None:
    """Keep all else: what was rehearsed is rehearsed again."""
    op.drop_table("rehearsal")
