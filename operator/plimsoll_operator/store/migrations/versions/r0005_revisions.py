"""Revisions of plans that run, and what ranks report for them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

ADDED = (
    ("passes_s", sa.JSON, "[]"),
    ("capacity_bytes", sa.BigInteger, "0"),
    ("moved_bytes", sa.BigInteger, "0"),
    ("moved_s", sa.Double, "0"),
    ("refused_revision", sa.BigInteger, "0"),
    ("refusal", sa.Text, ""),
)
"""Columns of an observation, and what stands in rows that were there before."""


def upgrade() -> None:
    """Add the table, and columns whose rows of before have nothing in them."""
    op.create_table(
        "plan_revision",
        sa.Column("plan_uid", sa.String(64), primary_key=True),
        sa.Column("attempt", sa.BigInteger, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("plan_digest", sa.String(71), nullable=False),
        sa.Column("made_s", sa.Double, nullable=False),
        sa.Column("state", sa.String(256), nullable=False),
        sa.Column("settled_s", sa.Double, nullable=False),
        sa.Column("num_steps", sa.BigInteger, nullable=False),
        sa.Column("moved_bytes", sa.BigInteger, nullable=False),
        sa.Column("moved_s", sa.Double, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    for name, kind, empty in ADDED:
        column = sa.Column(name, kind, nullable=False, server_default=empty)
        op.add_column("observation", column)


def downgrade() -> None:
    """Keep all else: a plan that runs is revised again, or stays."""
    for name, *_ in ADDED:
        op.drop_column("observation", name)
    op.drop_table("plan_revision")
